"""Background threads of xsem. Each thread ends when its work is done."""

from __future__ import annotations

import _thread
import atexit
import contextlib
import ctypes
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = [
    "Background", "Mark", "Pause", "calling_thread", "enter_own_thread", "exiting", "on_own_thread",
]

_log = logging.getLogger("xsem")

_AGAIN_S: Final = 0.5
_STEP_S: Final = 1.0   # longest wait for the threads at exit


class _Exit:
    under_way = False


_at_work: Final[set[Background]] = set()   # those whose thread works now


def _at_exit() -> None:
    """Let the threads end. Each ends after its current step, so this takes as long as the longest step."""
    # Python ends a daemon thread at its next use of the interpreter. If that use is inside a C++ function of another
    # library, for example of torch that frees a tensor, C++ aborts the process ("terminate called without an active
    # exception"; torch 2.11.0, in 7 of 42 exits during a release). A thread that the driver blocks is left behind.
    _Exit.under_way = True
    end = time.monotonic() + _STEP_S
    for background in tuple(_at_work):
        background.join(end - time.monotonic())


atexit.register(_at_exit)

if sys.platform == "linux":
    # Python ends a daemon thread by pthread_exit, and glibc's first pthread_exit loads this library. If that fails, for
    # example at the limit of open files, glibc aborts the process ("libgcc_s.so.1 must be installed for pthread_exit to
    # work"). Other C libraries do without.
    with contextlib.suppress(OSError):
        ctypes.CDLL("libgcc_s.so.1")

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_at_work.clear)   # the child has none of these threads


def exiting() -> bool:
    """Return whether the interpreter exits. From then on, xsem makes no driver call on its own account."""
    return _Exit.under_way


class Mark:
    """An object that lives as long as its thread."""

    __slots__ = ("__weakref__",)


class _Own(threading.local):
    here = False

    def __init__(self) -> None:
        self._mark = Mark()
        self.reference = weakref.ref(self._mark)


_own: Final = _Own()


def calling_thread() -> weakref.ref[Mark]:
    """Return a reference to the calling thread. It is the same object at each call, and dead after the thread."""
    return _own.reference


def enter_own_thread() -> None:
    """Mark the calling thread as a thread of xsem."""
    _own.here = True


def on_own_thread() -> bool:
    """Return whether the calling thread is a thread of xsem. All other threads belong to the application."""
    return _own.here


class Pause:
    """The pauses of one thread. Other threads, signal handlers and finalizers can end a pause."""

    # Not `SimpleQueue.get` with a timeout: if the thread loses the processor for longer than the timeout, the call can
    # wait for ever. CPython 3.11.7 and 3.12.1 do, after some thousand calls with 1 us on a busy machine; 3.13.0 does
    # not.

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def wait(self, timeout_s: float) -> bool:
        """Pause the calling thread for at most `timeout_s`. Return whether `end` ended the pause."""
        return self._lock.acquire(timeout=timeout_s)

    def end(self) -> None:
        """End the pause. Without one, the next pause ends at once; several calls have the effect of one."""
        try:  # noqa: SIM105
            self._lock.release()
        except RuntimeError:
            pass  # the lock is released already


class Background:
    """Runs `work` on a separate daemon thread while there is work."""

    # `work` does all work that is possible now, then returns; `busy` tells whether work is left, and is called once
    # more after `work` has returned. A refused start of the thread is repeated, and so is a `work` that raises, after a
    # log message. So no request is lost.

    def __init__(
        self, name: str, work: Callable[[], None], busy: Callable[[], bool], *, joined: bool = True
    ) -> None:
        self._name = name
        self._work = work
        self._busy = busy
        self.stalled = False   # work may remain without a thread that does it; `ensure` tries again
        # The interpreter's exit waits for the end of a step of `work`. False: `work` calls no function of a driver and
        # of the application, and may pause for long.
        self._joined = joined
        # Holds one element while no thread runs. pop() is an atomic claim, possible also in a finalizer.
        self._idle: deque[None] = deque([None], maxlen=1)
        # Held by the thread. `join` waits for it, and so does the second thread after an interrupted start.
        self._running = threading.Lock()
        self._said = False

    @property
    def running(self) -> bool:
        """Whether the thread runs, or is about to run."""
        return not self._idle

    def wake(self) -> bool:
        """Start the thread, unless it runs. Return False if the system refuses a thread now, for example at a limit."""
        # Takes no lock, so that a finalizer may call it.
        if _Exit.under_way:
            return True
        if not self._idle:
            return True  # the thread runs, and calls `busy` before it ends; or another caller starts it now
        try:
            self._idle.pop()
            # Not threading.Thread: its start() takes locks, and a finalizer can run while this thread holds them.
            _thread.start_new_thread(self._launch, ())
        except IndexError:
            return True  # another caller has just taken the start; if the start fails, that caller notes it
        except BaseException as error:
            self.stalled = True
            self._idle.append(None)
            if isinstance(error, RuntimeError | MemoryError):
                return False
            raise  # Ctrl-C
        self.stalled = self._said = False
        return True

    def ensure(self) -> bool:
        """Start the thread, as `wake` does, and log a refused start once as a warning. Not for finalizers."""
        if self.wake():
            return True
        if not self._said:
            self._said = True
            _log.warning("%s cannot be started: the system gives no thread now. Its work (callbacks, awaits, releases) "
                         "waits for a later call of xsem on this device, which tries again", self._name)
        return False

    def join(self, timeout_s: float) -> None:
        """Wait until no thread does the work, at most for this time."""
        if self._running.acquire(timeout=max(0.0, timeout_s)):
            self._running.release()

    def _launch(self) -> None:
        # The threading module does not know this thread. The first log record in it would add a dummy thread to the
        # list of that module, and the dummy would outlive the thread.
        try:
            threading.Thread(target=self._main, name=self._name, daemon=True).start()
        except (RuntimeError, MemoryError):
            # The system gives no second thread, so this one does the work.
            self._main()

    def _main(self) -> None:
        enter_own_thread()
        with self._running:
            if self._joined:
                _at_work.add(self)
            try:
                self._work_until_idle()
            finally:
                _at_work.discard(self)

    def _work_until_idle(self) -> None:
        while not _Exit.under_way:
            failed = not self._worked()
            self._idle.append(None)
            if not self._busy():
                return
            try:
                self._idle.pop()
            except IndexError:
                return  # another thread was started for the new work
            if failed:
                time.sleep(_AGAIN_S)

    def _worked(self) -> bool:
        """Do the work; return False if it raised."""
        try:
            self._work()
        except BaseException:  # also SystemExit, which ends a thread without a message
            _log.exception("%s failed, and goes on", self._name)
            return False
        return True
