"""Faults of waits for values that a timeline has from its start."""

from __future__ import annotations

import dataclasses
from typing import Any

from faults.base import Driver, List, a_driver, a_list


@a_list
class ZeroOfABatchNeedsASignal(List):
    """In a batch, a wait for 0 waits for the first signal of its timeline."""

    def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
        if len(semaphores) > 1:
            params = [dataclasses.replace(each, value=1) if each.value == 0 else each for each in params]
        return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)


@a_driver
class HostWaitForZeroNeedsASignal(Driver):
    """A wait of the host for 0 waits for the first signal of its timeline."""

    def host_wait(self, semaphore: Any, value: int | None, timeout_ns: int) -> bool:
        return bool(self.inner.host_wait(semaphore, 1 if value == 0 else value, timeout_ns))


@a_driver
class ZeroOfACreatedTimelineNeedsASignal(Driver):
    """Of a timeline that the device created, a wait for 0 behind other work waits for the first signal."""

    class list_type(List):  # noqa: N801
        signals = 0

        def append_signal(self, semaphores, params, wait_fences, release, want_fence):  # type: ignore[no-untyped-def]
            self.signals += 1
            return self.inner.append_signal(semaphores, params, wait_fences, release, want_fence)

        def append_wait(self, semaphores, params, wait_fences, acquire, want_fence):  # type: ignore[no-untyped-def]
            made = self.driver.__dict__.get("made", {})
            if self.signals:
                params = [dataclasses.replace(param, value=1) if param.value == 0 and id(each) in made else param
                          for each, param in zip(semaphores, params, strict=True)]
            return self.inner.append_wait(semaphores, params, wait_fences, acquire, want_fence)

    def create_semaphore(self, type: Any, initial_value: int) -> Any:
        made = self.inner.create_semaphore(type, initial_value)
        self.__dict__.setdefault("made", {})[id(made)] = made
        return made

    def release_semaphore(self, semaphore: Any) -> None:
        self.__dict__.setdefault("made", {}).pop(id(semaphore), None)
        self.inner.release_semaphore(semaphore)
