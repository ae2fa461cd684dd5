"""The parts of a timeline's page that Linux and Windows share (docs/host-objects.md)."""

from __future__ import annotations

import ctypes
import struct
import time
from abc import abstractmethod
from typing import Final, NamedTuple, Protocol

from xsem.data.handles import OwnedHandle
from xsem.data.params import UINT64_MAX
from xsem.data.signallers import PageHolder
from xsem.errors import BadArgumentError, BadHandleError, ReleasedError
from xsem.portable.semaphore_base import SemaphoreBase

__all__ = ["HEAD", "TIMELINE_BYTES", "Fields", "SharedPages", "TimelineSemaphore", "check_head"]

MAGIC: Final = 0x314E4C544D455358  # "XSEMTLN1", little-endian
VERSION: Final = 2
KIND_TIMELINE: Final = 2
TIMELINE_BYTES: Final = 4096
_HEAD: Final = struct.Struct("=QII")
HEAD: Final = _HEAD.pack(MAGIC, VERSION, KIND_TIMELINE)   # the first bytes of each timeline; the value follows
_VALUE_AT: Final = len(HEAD)
_ABANDONED: Final = 1
_RAISED_BY: Final = 2**62   # a GPU that compares the signed difference also sees the raised value as higher
_SHORTEST_POLL_NS: Final = 10_000
_LONGEST_POLL_NS: Final = 250_000


class Fields(NamedTuple):
    """Offsets of the fields that have other places on Windows."""

    silent: int
    abandoned: int
    last: int


class _OwnHolder(PageHolder, Protocol):
    """The hold of a timeline on its page."""

    def close(self) -> None:
        """End the hold."""


class SharedPages(Protocol):
    """Mapped pages, on Linux or on Windows."""

    @property
    def address(self) -> int:
        """Address of the first byte."""
        ...

    def close(self) -> None:
        """Unmap the pages."""


class TimelineSemaphore(SemaphoreBase):
    """A timeline semaphore: a value in the first `TIMELINE_BYTES` of an object, which all its processes map."""

    identity = ""   # the same in all processes; empty: the system gives no name for it

    def __init__(
        self, handle: OwnedHandle, pages: SharedPages, fields: Fields, *, read_only: bool = False,
        holder: _OwnHolder | None = None,
    ) -> None:
        self._pages = pages   # closed by `_free`, like the holder
        self.holder = holder   # None: the system tells nothing about other holders
        self.address = pages.address
        self.read_only = read_only
        # Each access is one aligned load or store, so no process sees half a value.
        self._value = ctypes.c_uint64.from_address(pages.address + _VALUE_AT)
        self._silent = ctypes.c_uint32.from_address(pages.address + fields.silent)
        self.abandoned_at = pages.address + fields.abandoned   # the address of a u32, not 0 in an abandoned timeline
        self._abandoned = ctypes.c_uint32.from_address(self.abandoned_at)
        self._last = ctypes.c_uint64.from_address(pages.address + fields.last)
        super().__init__(handle)

    @property
    def value(self) -> int:
        """The current value. For an abandoned timeline, the last one that was signalled."""
        with self._use():
            value = self._value.value
            self._fence()
            return self._last.value if self._abandoned.value == _ABANDONED else value

    def signal(self, value: int | None) -> None:
        """Set the value and wake all waiters. Never blocks. An abandoned timeline keeps its value."""
        wanted = _needed(value)
        self._check_writable()
        with self._use():
            self._fence()
            if self._abandoned.value != _ABANDONED:
                self._value.value = wanted
                self._wake()

    # ---- abandonment
    def abandon(self) -> None:
        """End the waits for values that no process will signal: they are met, and the page tells why."""
        self._check_writable()
        with self._use():
            # In this order, two processes that abandon the timeline at the same time do not take the raised value for
            # the last one.
            last = self._value.value
            self._fence()
            if self._abandoned.value == _ABANDONED:
                return
            self._last.value = last
            self._fence()
            self._abandoned.value = _ABANDONED
            self._fence()
            self._value.value = min(last + _RAISED_BY, UINT64_MAX)
            self._wake()

    @property
    def abandoned(self) -> bool:
        """Whether a process has abandoned the timeline. False after `close`."""
        try:
            with self._use():
                return self._abandoned.value == _ABANDONED
        except ReleasedError:
            return False

    def lost(self, value: int | None) -> bool:
        """Return whether the timeline was abandoned before it had this value. False after `close`."""
        try:
            with self._use():
                return self._abandoned.value == _ABANDONED and value is not None and value > self._last.value
        except ReleasedError:
            return False

    def _check_writable(self) -> None:
        if self.read_only:
            raise BadHandleError("the timeline was imported from a handle that is open only for reading",
                                 reason="read_only")

    def wait(self, value: int | None, timeout_ns: int) -> bool:
        """Block until the timeline is at least `value` or the timeout expires; return whether it is."""
        wanted = _needed(value)
        with self._use():
            return self._sleep(wanted, timeout_ns)

    def wake(self) -> None:
        """Let the waiters look at the value again."""
        with self._use():
            self._wake()

    def note_silent_signals(self) -> None:
        """Note in the page that some signals wake no waiters, so that waiters poll from now on."""
        with self._use():
            self._silent.value = 1
            self._fence()
            self._wake()   # present waiters read the note

    def _poll(self, wanted: int, timeout_ns: int) -> bool:
        """Wait without a wake-up, because some signals give none."""
        began_ns = time.monotonic_ns()
        while self._value.value < wanted and self._abandoned.value != _ABANDONED:
            waited_ns = time.monotonic_ns() - began_ns
            if waited_ns >= timeout_ns:
                return False
            # A wait ends late by a small part of its length, and a long one costs less than 5 % of a core: a sleep
            # took 13 to 16 us of CPU in two virtual machines (Linux 6.18).
            pause_ns = min(max(waited_ns // 16, _SHORTEST_POLL_NS), _LONGEST_POLL_NS)
            time.sleep(min(pause_ns, timeout_ns - waited_ns) / 1e9)
        self._fence()
        return True

    @abstractmethod
    def _wake(self) -> None:
        """Wake all waiters. The new value is stored."""

    @abstractmethod
    def _sleep(self, wanted: int, timeout_ns: int) -> bool:
        """Wait as `wait` does, inside `_use`."""

    def _reached(self, wanted: int) -> bool:
        """Return whether the timeline is at least `wanted`, or abandoned."""
        self._fence()
        reached = self._value.value >= wanted or self._abandoned.value == _ABANDONED
        self._fence()
        return reached

    def _free(self) -> None:
        super()._free()
        self._pages.close()
        if self.holder is not None:
            self.holder.close()


def check_head(head: bytes, what: str) -> None:
    """Check the first bytes of a timeline, as many as `HEAD` has."""
    magic, version, kind = _HEAD.unpack(head)
    if magic != MAGIC:
        raise BadHandleError(f"the {what} is not a timeline in host memory: its magic number differs",
                             reason="wrong_magic")
    if version != VERSION:
        raise BadHandleError(f"the timeline has format version {version}; this xsem supports {VERSION}",
                             reason="wrong_version")
    if kind != KIND_TIMELINE:
        raise BadHandleError(f"the {what} holds an object of kind {kind}, not a timeline", reason="wrong_kind")


def _needed(value: int | None) -> int:
    if value is None:
        raise BadArgumentError("a timeline needs a value", reason="value_required")
    return value
