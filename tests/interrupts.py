"""KeyboardInterrupt at each place where CPython can deliver one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["interrupt_at"]


def interrupt_at(place: int, work: Callable[[], object], files: tuple[str, ...]) -> str | None:
    """Run `work` on this thread and raise KeyboardInterrupt at its so-many-th place; the place, None behind the last.

    Python looks for signals where a function begins and where a call has returned. Only functions of `files` (ends of
    their paths) count. Not counted: a generator's `yield`, which no signal interrupts there, and finalizers, which have
    no caller to raise it in.
    """
    seen = 0
    found: str | None = None

    def watch(frame: Any, event: str, _arg: object) -> None:
        nonlocal seen, found
        code = frame.f_code
        if event == "c_call" or not code.co_filename.endswith(files):
            return
        if event == "return" and code.co_flags & inspect.CO_GENERATOR:
            return
        if _in_finalizer(frame):
            return
        seen += 1
        if seen == place:
            found = f"{code.co_qualname}:{frame.f_lineno} {event}"
            raise KeyboardInterrupt

    try:
        sys.setprofile(watch)
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return found


def _in_finalizer(frame: Any) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False
