"""KeyboardInterrupt before each bytecode of xsem. CPython delivers it at fewer places: see `support.interrupts`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import xsem
from support.open_files import is_open
from xsem.spi import same_open_file

__all__ = ["Interrupt", "canaries"]

XSEM = str(Path(xsem.__file__).parent)


class Interrupt:
    """Raises KeyboardInterrupt before the `at`-th bytecode that xsem runs."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._seen = 0
        self.where = ""

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(XSEM) or name.endswith("handles.py"):  # OwnedHandle is tested elsewhere
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self._seen += 1
            if self._seen == self._at:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} ({frame.f_code.co_name})"
                raise KeyboardInterrupt
        return self._trace

    def during(self, call: Callable[[], object]) -> BaseException | None:
        """Return the exception of `call`. Its result is dropped without an interrupt."""
        before = sys.gettrace()
        result = None
        try:
            sys.settrace(self._trace)
            result = call()
        except (KeyboardInterrupt, xsem.XsemError) as error:
            return error
        finally:
            sys.settrace(before)
        del result
        return None


@contextmanager
def canaries() -> Iterator[list[tuple[int, int]]]:
    """Open new files under the lowest free numbers: a second close of a number closes one of them."""
    made = [(number, os.dup(number)) for number in (os.memfd_create("canary") for _ in range(4))]
    try:
        yield made
    finally:
        for number, witness in made:
            if is_open(number) and same_open_file(number, witness):
                os.close(number)
            os.close(witness)
