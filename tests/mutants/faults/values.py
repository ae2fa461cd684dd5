"""Faults with large values in calls of the host."""

from __future__ import annotations

from typing import Any

from faults.base import Driver, a_driver

_SIGNED_MAX = 2**63 - 1


@a_driver
class HostSignalsHave63Bits(Driver):
    """A host signal above 2**63 - 1 sets 2**63 - 1."""

    def host_signal(self, semaphore: Any, value: int | None) -> None:
        self.inner.host_signal(semaphore, None if value is None else min(value, _SIGNED_MAX))


@a_driver
class HostWaitsAreSigned(Driver):
    """A host wait for a value above 2**63 - 1 is met at once, as for a negative value."""

    def host_wait(self, semaphore: Any, value: int | None, timeout_ns: int) -> bool:
        if value is not None and value > _SIGNED_MAX:
            return True
        return self.inner.host_wait(semaphore, value, timeout_ns)   # type: ignore[no-any-return]


@a_driver
class ValueIsAFloat(Driver):
    """The value of a timeline passes through a floating-point number of 53 bits."""

    def semaphore_value(self, semaphore: Any) -> int:
        return min(int(float(self.inner.semaphore_value(semaphore))), 2**64 - 1)
