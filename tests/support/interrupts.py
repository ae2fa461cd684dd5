"""KeyboardInterrupt at each place where CPython can deliver one.

CPython runs signal handlers only between certain instructions: at the start of a function, after a call, at the end of
a loop iteration. So this module does not guess places. It counts instructions and sets the signal pending at a chosen
one. CPython itself then delivers the signal at the next possible place.
"""

from __future__ import annotations

import _thread
import dis
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, NamedTuple

__all__ = ["Place", "interruptions"]

# A signal set pending before another instruction is delivered at the same place as before the next one of these.
_DECIDES: Final = ("RESUME", "PRECALL", "CALL", "JUMP_BACKWARD", "RETURN", "YIELD", "LOAD_ATTR", "FOR_ITER", "SEND",
                   "BEFORE_WITH", "COMPARE_OP", "CONTAINS_OP")
# Ends of names: the name of a compiled function begins with its module.
_CALLS: Final = ("PreparedAppend.call",)
_TESTS: Final = Path(__file__).parents[1]
_TOOL: Final = 4   # a tool id that sys.monitoring does not reserve for debuggers, coverage or profilers
_offsets: dict[CodeType, frozenset[int]] = {}


class Place(NamedTuple):
    """Where an interrupt was delivered."""

    file: str
    function: str
    line: int
    offset: int
    swallowed: bool   # in a finalizer, whose exceptions CPython does not propagate
    driver: bool   # in a call of the driver, or in the method of xsem that makes this call

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} {self.function}{' (in a finalizer)' if self.swallowed else ''}"


def interruptions(act: Callable[[], object], step: int = 1) -> Iterator[tuple[Place, str]]:
    """Call `act` repeatedly, each time with the interrupt `step` instructions later, until `act` ends before it.

    Yields each place and the repr of the exception that `act` raised instead of KeyboardInterrupt, or an empty string.
    The exception itself is already freed, with the objects that its traceback kept alive.
    """
    at, counted = 0, 0
    while counted >= at:
        at += step
        place, otherwise, counted = _interrupted(act, at)
        if place is not None:
            yield place, otherwise


def _interrupted(act: Callable[[], object], at: int) -> tuple[Place | None, str, int]:
    swallowed: list[Place] = []
    hook = sys.unraisablehook

    def note(unraisable: Any) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            swallowed.append(_place(unraisable.exc_traceback, swallowed=True))
        else:
            hook(unraisable)

    raised: BaseException | None = None
    counter = _Counter(at)
    sys.unraisablehook = note
    try:
        try:
            counter.start()
            act()
            counter.stop()
        except BaseException as error:
            raised = error
            counter.stop()
    except KeyboardInterrupt:
        pass   # the signal was set pending near the end of `act` and delivered here
    finally:
        sys.unraisablehook = hook
    place: Place | None = swallowed[0] if swallowed else None
    interrupt = _interrupt_behind(raised)
    if interrupt is not None:
        place = _place(interrupt.__traceback__, swallowed=False)
    otherwise = "" if raised is None or isinstance(raised, KeyboardInterrupt) else repr(raised)
    del raised, interrupt   # the traceback refers to this frame: only the garbage collector would break this cycle
    if place is not None and place.file == __file__:
        return None, "", counter.count
    return place, otherwise, counter.count


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _place(traceback: TracebackType | None, *, swallowed: bool) -> Place:
    assert traceback is not None
    driver = False
    while True:
        code = traceback.tb_frame.f_code
        path = Path(code.co_filename)
        if not path.is_relative_to(_TESTS):
            driver = (driver or "backends" in path.parts or path.parent.name == "spi"
                      or code.co_qualname.endswith(_CALLS))
        if traceback.tb_next is None:
            return Place(code.co_filename, code.co_qualname, traceback.tb_lineno, traceback.tb_lasti, swallowed, driver)
        traceback = traceback.tb_next


class _Counter:
    """Counts deciding instructions between `start` and `stop`, and sets SIGINT pending at one of them.

    A `for` loop calls the iterator's function without a check for signals afterwards, unlike a call. So the interrupt
    is not delivered in this class.
    """

    def __init__(self, at: int) -> None:
        self.count = 0
        self._at = at

    def _is_the_one(self, code: CodeType, offset: int) -> bool:
        if code.co_filename == __file__ or offset not in _deciding(code):
            return False
        self.count += 1
        return self.count == self._at

    if sys.version_info >= (3, 12):

        def start(self) -> None:
            def instruction(code: CodeType, offset: int) -> None:
                if self._is_the_one(code, offset):
                    sys.monitoring.set_events(_TOOL, 0)
                    for _ in iter(_thread.interrupt_main, None):
                        pass

            sys.monitoring.use_tool_id(_TOOL, "interrupts")
            sys.monitoring.register_callback(_TOOL, sys.monitoring.events.INSTRUCTION, instruction)
            sys.monitoring.set_events(_TOOL, sys.monitoring.events.INSTRUCTION)

        def stop(self) -> None:
            sys.monitoring.set_events(_TOOL, 0)
            sys.monitoring.free_tool_id(_TOOL)

    else:

        def start(self) -> None:
            def instruction(frame: FrameType, event: str, _argument: object) -> Any:
                if event == "opcode" and self._is_the_one(frame.f_code, frame.f_lasti):
                    sys.settrace(None)
                    for _ in iter(_thread.interrupt_main, None):
                        pass
                return instruction

            def function(frame: FrameType, _event: str, _argument: object) -> Any:
                frame.f_trace_lines, frame.f_trace_opcodes = False, True
                return instruction

            sys.settrace(function)

        def stop(self) -> None:
            sys.settrace(None)


def _deciding(code: CodeType) -> frozenset[int]:
    known = _offsets.get(code)
    if known is None:
        known = _offsets[code] = frozenset(each.offset for each in dis.get_instructions(code)
                                           if each.opname.startswith(_DECIDES))
    return known
