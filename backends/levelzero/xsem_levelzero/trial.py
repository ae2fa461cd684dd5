"""Trial of a driver with a DRM syncobj of xsem: what the driver does counts, and not the number of its build.

Every wait of the trial is met by itself, or by a signal of the host afterwards, and every wait of the host has a limit.
Two facts are not tried, because a driver with the flaw would hang: a signal behind an unmet wait before 26.22, which
blocks a thread of the driver for ever, and the join of that wait's worker at the end of the process.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from typing import Final, NamedTuple

from xsem.spi import DriverFd, duplicate_fd
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreHandleType, SignalParams, WaitParams
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.extension import SIGNAL, WAIT
from xsem_levelzero.fences import Events, Fence
from xsem_levelzero.objects import Syncobj
from xsem_levelzero.semaphores import Batches, Semaphore, semaphore_struct

__all__ = ["Seen", "try_syncobj"]

_TIMELINE: Final = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
_SIGNALS: Final = 8
_SLICE_NS: Final = 10_000_000
_SLICES: Final = 10   # for what a driver does at once or never; slices, because the process may not run for a while
_LIMIT_NS: Final = 2_000_000_000
_AFTER_ALL: Final = 1 << 20


class Seen(NamedTuple):
    """What the trial saw. None: nothing."""

    one_wait: bool | None = None   # an import supports one wait: the next one passed at once
    late: bool | None = None       # a signal came after its event
    behind: bool | None = None     # a signal behind an unmet wait was made after this wait
    zero: bool | None = None       # a wait for 0 on a timeline without a signal was met
    closes: bool | None = None     # the driver closes an imported fd

    def __str__(self) -> str:
        texts = (
            (self.one_wait, "an import supports one wait", "an import supports many waits"),
            (self.late, "signals come after their event", "signals came before their event"),
            (self.behind, "a signal behind an unmet wait is made", "a signal behind an unmet wait was not made"),
            (self.zero, "a wait for 0 is met", "a wait for 0 is not met before the first signal"),
            (self.closes, "an imported fd is closed", "an imported fd stays open"),
        )
        return "; ".join(yes if seen else no for seen, yes, no in texts if seen is not None)


class _Trial:
    def __init__(self, core: Core, objects: ExitStack) -> None:
        self._core = core
        self._objects = objects
        self._events = Events(core)
        self.closes: bool | None = None
        self._made: list[Syncobj] = []
        self._last: Fence | None = None   # of the last operation
        objects.callback(self._events.close)
        commands, _ = core.create_list(0)
        objects.callback(core.destroy, "zeCommandListDestroy", commands)
        self._commands = core.extension.command_list(commands)

    def syncobj(self) -> tuple[Syncobj, OwnedHandle] | None:
        made = Syncobj.create()
        if made is None:
            return None
        self._objects.callback(made.close)
        self._made.append(made)
        return made, self._objects.enter_context(made.export())

    def imported(self, fd: OwnedHandle) -> Semaphore:
        given = DriverFd(duplicate_fd(fd.fileno()), fd)
        try:
            struct = semaphore_struct(SemaphoreDesc(type=_TIMELINE, handle=given.number), given.number)
            made = Semaphore(self._core.extension.import_semaphore(self._core.extension_device, struct), _TIMELINE)
            self._objects.callback(made.release, self._core)
            left = given.left_open()
            self.closes = None if left is None else not left
        finally:
            given.settle()
        return made

    def append(self, name: str, semaphore: Semaphore, value: int) -> Fence:
        batch = (Batches(ze.WaitParams).fill([semaphore], [WaitParams(value=value)]) if name == WAIT else
                 Batches(ze.SignalParams).fill([semaphore], [SignalParams(value=value)]))
        event = self._events.take()
        self._core.extension.append(name, self._commands, [semaphore.handle], batch, event.native, ())
        self._last = event
        return event

    def soon(self, event: Fence) -> bool:
        return any(self._events.wait(event, _SLICE_NS) for _ in range(_SLICES))

    def ends(self, event: Fence) -> bool:
        return self._events.wait(event, _LIMIT_NS)

    def finish(self) -> bool:
        """Release the waits that are left after a failure. Return whether the list has ended."""
        for each in self._made:
            with suppress(OSError):
                each.signal(_AFTER_ALL)
        return self._last is None or self.ends(self._last)


def try_syncobj(core: Core, *, signal_blocks: bool) -> Seen:
    """Try the driver. `signal_blocks`: the number of the build tells of this flaw, so it is not tried."""
    with ExitStack() as objects:   # the last one is destroyed first, and each one also after a failure
        trial = _Trial(core, objects)
        seen, ended = Seen(), False
        try:
            seen, ended = _try(trial, signal_blocks=signal_blocks)
        finally:
            try:
                ended = ended or trial.finish()
            finally:
                if not ended:   # the driver may still use the objects, so they stay, and the context, too
                    objects.pop_all()
                    core.has_remains = True
        return seen


def _try(trial: _Trial, *, signal_blocks: bool) -> tuple[Seen, bool]:
    """Return what was seen, and whether everything has ended."""
    made, other = trial.syncobj(), trial.syncobj()
    if made is None or other is None:
        return Seen(), True
    syncobj, fd = made
    signals, waits, unsignalled = trial.imported(fd), trial.imported(fd), trial.imported(other[1])
    seen = Seen(late=False, closes=trial.closes)
    for value in range(1, 1 + _SIGNALS):
        if not trial.ends(trial.append(SIGNAL, signals, value)):
            return seen, False
        seen = seen._replace(late=seen.late or syncobj.value() < value)
        if not _reaches(syncobj, value):
            return seen, False
    unmet = _SIGNALS + 1
    if not trial.ends(trial.append(WAIT, waits, 1)):
        return seen, False
    second = trial.append(WAIT, waits, unmet)
    seen = seen._replace(one_wait=trial.soon(second))
    behind = None if seen.one_wait or signal_blocks else trial.append(SIGNAL, signals, unmet + 1)
    syncobj.signal(unmet)
    if not trial.ends(second):
        return seen, False
    if behind is not None:
        seen = seen._replace(behind=_reaches(syncobj, unmet + 1))
        if not seen.behind or not trial.ends(behind):
            return seen, False
    # Last: the thread of the driver has ended all signals when it has looked at this wait.
    zero = trial.append(WAIT, unsignalled, 0)
    seen = seen._replace(zero=trial.soon(zero))
    other[0].signal(1)
    return seen, trial.ends(zero)


def _reaches(syncobj: Syncobj, value: int) -> bool:
    deadline = time.monotonic_ns() + _LIMIT_NS
    while syncobj.value() < value:
        if time.monotonic_ns() > deadline:
            return False
        time.sleep(0.0005)
    return True
