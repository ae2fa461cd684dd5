"""Detection of a driver's behaviour by imports of real semaphores: the list of extensions is not reliable.

xsem can create two kinds of objects without another API: a DRM syncobj, which Intel's driver for Linux imports and Mesa
exports, and the objects of docs/host-objects.md, which the simulated driver imports. The probe imports one object after
the other for each handle type. The backend declares the types whose import succeeded.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from xsem.errors import BusyError, DriverError, OutOfMemoryError, UnsupportedError, XsemError
from xsem.spi import duplicate_fd
from xsem.types import OwnedHandle, SemaphoreHandleType, WaitParams
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.extension import WAIT
from xsem_levelzero.fences import Events, Fence
from xsem_levelzero.intel.releases import flaw_of, signal_blocks
from xsem_levelzero.objects import Syncobj, eventfd, timeline_page
from xsem_levelzero.results import NOT_READY, SUCCESS, error_of
from xsem_levelzero.semaphores import Batches, Semaphore, import_fd
from xsem_levelzero.trial import Seen, try_syncobj

__all__ = ["Behaviour", "probe"]

_log = logging.getLogger("xsem")

_BINARY: Final = SemaphoreHandleType.OPAQUE_FD
_TIMELINE: Final = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
_PATIENCE_NS: Final = 2_000_000_000
_PAUSE_S: Final = 0.001
_ITS_RELEASE: Final = "its release: "


class Behaviour(NamedTuple):
    """The result of the probe."""

    types: frozenset[SemaphoreHandleType] = frozenset()   # whose import succeeded
    early: bool = False    # a wait may be appended before its signal
    resets: bool = False   # a completed wait resets a binary semaphore
    found_by: str = ""     # the objects that were imported, for reports
    refusals: dict[SemaphoreHandleType, str] = {}  # noqa: RUF012  # the reasons, by type; never changed
    codes: frozenset[int] = frozenset()   # of the refused imports
    seen: Seen = Seen()   # of the trial with a DRM syncobj


def probe(core: Core, build: int | None = None) -> Behaviour:
    """Import one object of each type that is a file descriptor, and try a syncobj. The probe runs only on Linux."""
    # Without memory or file descriptors the probe tells nothing, so OutOfMemoryError or BusyError passes through.
    types: set[SemaphoreHandleType] = set()
    refusals: dict[SemaphoreHandleType, str] = {}
    found_by: set[str] = set()
    codes: set[int] = set()
    early = resets = False
    for type, makers in ((_BINARY, (_syncobj, eventfd)), (_TIMELINE, (_syncobj, timeline_page))):
        for make in makers:
            try:
                fd = make()
            except OSError as error:
                raise _without_object(error) from error
            if fd is None:
                continue
            with fd:
                what = ""   # what the driver refuses, if not the import
                try:
                    handle = import_fd(core, type, duplicate_fd(fd.fileno()), fd)
                    if make is eventfd:
                        what = "a wait for it: "
                        early, resets, stuck = _watch(core, handle, fd.fileno())
                        if stuck:
                            refusals[type] = "a wait for it was not met by its signal"
                            continue
                    else:
                        what = _ITS_RELEASE
                        core.extension.release_semaphore(handle)
                except XsemError as error:
                    if isinstance(error, BusyError | OutOfMemoryError) and what != _ITS_RELEASE:
                        raise
                    codes.add(error.code or 0)
                    if what or type not in refusals or not isinstance(error, UnsupportedError):
                        refusals[type] = f"{what}{error.code_name or error}"
                    continue
                types.add(type)
                refusals.pop(type, None)
                found_by.add(_NAMES[make])
                if make is _syncobj:
                    early = True  # from the driver's source: the wait stays pending, and no wait resets
            break
    taken = ", ".join(sorted(found_by)) or "no object was imported"
    seen = Seen()
    if _TIMELINE in types and found_by == {_NAMES[_syncobj]} and flaw_of(build) is None:
        seen = _tried(core, build)
    return Behaviour(frozenset(types), early, resets, taken, refusals, frozenset(codes), seen)


def _tried(core: Core, build: int | None) -> Seen:
    try:
        return try_syncobj(core, signal_blocks=signal_blocks(build))
    except (BusyError, OutOfMemoryError):
        raise   # the next opening tries again
    except (XsemError, OSError):
        _log.warning("the trial of the driver with a DRM syncobj failed, so the number of its build decides",
                     exc_info=True)
        return Seen()


def _watch(core: Core, handle: int, counter: int) -> tuple[bool, bool, bool]:
    """Wait for an eventfd, then signal it. Return whether the wait was pending before, reset it, was pending after."""
    events = Events(core)
    pending = signalled = stuck = False
    with ExitStack() as objects:   # the last one is destroyed first, and each one also after a failure
        objects.callback(core.extension.release_semaphore, handle)
        objects.callback(events.close)
        commands, _ = core.create_list(0)
        objects.callback(core.destroy, "zeCommandListDestroy", commands)
        met = events.take()
        params = Batches(ze.WaitParams).fill([Semaphore(handle, _BINARY)], [WaitParams()])
        core.extension.append(WAIT, core.extension.command_list(commands), [handle], params, met.native, ())
        try:
            pending = not events.done(met)
        finally:
            # Also after a failed query: the wait must end before its objects are destroyed. If its end is not known, or
            # it stays pending, the driver may use the objects, so they stay, and the context, too.
            stuck = True
            try:
                _signal(counter)
                stuck = not _met(core, met)
            finally:
                if stuck:
                    objects.pop_all()
                    core.has_remains = True
        signalled = bool(select.select([counter], [], [], 0)[0])
    return pending, not signalled, stuck


def _met(core: Core, met: Fence) -> bool:
    """Return whether the signalled wait ends. A failing call is repeated until the time is over."""
    deadline = time.monotonic_ns() + _PATIENCE_NS
    answered, code = False, SUCCESS
    while (left := deadline - time.monotonic_ns()) > 0:
        code = core.loader.raw("zeEventHostSynchronize", met.handle, left)
        if code == SUCCESS:
            return True
        answered |= code == NOT_READY
        if code != NOT_READY:
            time.sleep(_PAUSE_S)
    if not answered:   # so the end of the wait is not known
        raise error_of("zeEventHostSynchronize", code)
    return False


def _signal(counter: int) -> None:
    os.write(counter, (1).to_bytes(8, sys.byteorder))


def _without_object(error: OSError) -> XsemError:
    """Return the error for a probe without an object."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return BusyError("the process cannot open another file descriptor, so the semaphores of the device cannot be "
                         "tried: close some, or raise the limit (ulimit -n)", reason="fd_limit")
    if error.errno == errno.ENOMEM:
        return OutOfMemoryError("the system has no memory to try the semaphores of the device", reason="out_of_memory")
    return DriverError(f"the kernel refused an object to try the semaphores of the device: {error}",
                       reason="system_call_failed", code=error.errno)


def _syncobj() -> OwnedHandle | None:
    syncobj = Syncobj.create()
    if syncobj is None:
        return None
    try:
        return syncobj.export()
    finally:
        syncobj.close()


_NAMES: Final[dict[Callable[[], OwnedHandle | None], str]] = {
    _syncobj: "DRM syncobj", eventfd: "eventfd", timeline_page: "timeline page",
}
