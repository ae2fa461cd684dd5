"""Threads of xsem on which a context of xsem is current."""

from __future__ import annotations

import atexit
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from xsem.errors import ReleasedError
from xsem.spi import skip_exit_handlers
from xsem_opengl.glx import AnyContext

__all__ = ["Worker"]

_T = TypeVar("_T")


# Measured on an H200 (580.159.04): eglMakeCurrent of a context on another thread blocks while the context waits, and so
# does that of a second one that was not current before. A second one that shares with the first, and is current on its
# thread before the first wait is appended, imports and frees in at most 0.5 ms while the first context waits.
class Worker:
    """Makes calls of OpenGL, one after the other. The context is the worker's from the first line on."""

    def __init__(self, context: AnyContext) -> None:
        self._context = context
        self._tasks: queue.SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], Call] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="xsem-opengl", daemon=True)
        self._lock = threading.Lock()
        self.closed = False
        try:
            self._thread.start()
            self.call(context.make_current)
        except BaseException:
            self._end()
            context.destroy()
            raise
        _open.add(self)

    def call(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call a function on the thread, and return or raise what it does."""
        if threading.current_thread() is self._thread:
            return function(*arguments)
        call = Call()
        with self._lock:
            if self.closed:
                raise ReleasedError("the device is closed", reason="released")
            self._tasks.put((function, arguments, call))
        interrupt: BaseException | None = None
        while not call.ended:   # because afterwards the caller closes what the call uses
            try:
                call.done.acquire()
            except BaseException as error:   # Ctrl-C
                interrupt = error
        if interrupt is not None:
            raise interrupt
        if call.error is not None:
            raise call.error
        result: _T = call.result
        return result

    def close(self) -> None:
        """Destroy the context and end the thread."""
        try:
            self.call(self._context.make_none_current)
            self.call(self._context.destroy)
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:   # no task may come behind the end
            self.closed = True
            self._tasks.put(None)
        if self._thread.ident is not None:
            self._thread.join()
        _open.discard(self)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            function, arguments, call = task
            try:
                call.result = function(*arguments)
            except BaseException as error:
                call.error = error
            finally:
                call.ended = True
                call.done.release()
            del task, function, arguments, call


class Call:
    """A call of another thread."""

    def __init__(self) -> None:
        self.done = threading.Lock()   # held until the end
        self.done.acquire()
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None


_open: Final = set[Worker]()


@atexit.register
def _at_exit() -> None:
    """Let the process end without the drivers' exit handlers, if a context is current on a thread of xsem."""
    # Measured on an H200 (580.159.04): they wait for ever behind an unmet wait, and can crash otherwise.
    if _open:
        skip_exit_handlers()
