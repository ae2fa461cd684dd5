"""What is remembered of one semaphore: its token, its record and the last value signalled through it."""

from __future__ import annotations

import threading

from xsem.errors import BadArgumentError, BusyError
from xsem.lifetime import Record
from xsem.spi import Token
from xsem.types import Kind, SemaphoreHandleType

__all__ = ["SemaphoreState"]


class SemaphoreState:
    """Shared by the public `Semaphore` and the books, which must not keep the public object alive."""

    __slots__ = (
        "_lock", "_unreset", "exported", "host_order", "imported", "kind", "label", "last_signalled", "record", "token",
        "type",
    )

    def __init__(
        self, type: SemaphoreHandleType, label: str, token: Token, record: Record, *, imported: bool,
        initial_value: int | None,
    ) -> None:
        self.type = type
        self.kind = type.kind
        self.label = label
        self.token = token
        self.record = record
        self.imported = imported
        self.exported = False
        self.last_signalled = initial_value
        self._unreset = False
        self._lock = threading.Lock()
        self.host_order = threading.Lock()

    @property
    def described(self) -> str:
        """Type and label, as reports name it."""
        return f"{self.type.value} {self.label!r}" if self.label else self.type.value

    # ---- timeline values
    def advance(self, value: int, *, allow_rewind: bool) -> int | None:
        """Take note of a value about to be signalled; the previous one, for `restore`.

        Raises
        ------
        BadArgumentError
            ``value_not_above_last``.
        """
        with self._lock:
            previous = self.last_signalled
            if previous is not None and value <= previous and not allow_rewind:
                raise BadArgumentError(
                    f"{self.described} was last signalled here with {previous}; {value} is not above it "
                    "(SignalParams(allow_rewind=True) permits it)",
                    reason="value_not_above_last",
                    handle_type=self.type,
                )
            self.last_signalled = value
            return previous

    def restore(self, value: int, previous: int | None) -> None:
        """The signal of `value` was not appended after all."""
        with self._lock:
            if self.last_signalled == value:
                self.last_signalled = previous

    # ---- binary semaphores that a wait does not reset
    def claim_wait(self) -> None:
        """Before a wait on a device where `resets_on_wait` is False.

        Raises
        ------
        BusyError
            ``not_reset``: Level Zero's semantics rule 7 leaves the reset to the exporter.
        """
        if self.kind is not Kind.BINARY:
            return
        with self._lock:
            if self._unreset:
                raise BusyError(
                    f"{self.described} has been waited for and this device does not reset it: the exporter must (Level "
                    "Zero external semaphores, rule 7); call mark_reset() when it has",
                    reason="not_reset",
                    handle_type=self.type,
                )
            self._unreset = True

    def mark_reset(self) -> None:
        """The exporter has reset it."""
        with self._lock:
            self._unreset = False
