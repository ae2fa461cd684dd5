"""KeyboardInterrupt at each place where CPython can deliver one.

CPython runs signal handlers between certain instructions only: at the start of a function, after a call, at the end of
a loop's round. So no place is guessed here. The interpreter is asked to count instructions; at a chosen one the signal
is set pending, and CPython itself delivers it at the next place where it can.
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

# Set pending before any other instruction, the signal would be delivered where it is before the next one of these.
_DECIDES: Final = ("RESUME", "PRECALL", "CALL", "JUMP_BACKWARD", "RETURN", "YIELD", "LOAD_ATTR", "FOR_ITER", "SEND",
                   "BEFORE_WITH", "COMPARE_OP", "CONTAINS_OP")
_TOOL: Final = 4   # of those that sys.monitoring has for others than debuggers, coverage and profilers
_offsets: dict[CodeType, frozenset[int]] = {}


class Place(NamedTuple):
    """Where an interrupt was delivered."""

    file: str
    function: str
    line: int
    offset: int
    swallowed: bool   # in a finalizer, which CPython does not let raise

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line} {self.function}{' (in a finalizer)' if self.swallowed else ''}"


def interruptions(act: Callable[[], object]) -> Iterator[tuple[Place, str]]:
    """Call `act` over and over, each time with the interrupt one instruction later, until none is delivered inside.

    With each place comes what `act` raised instead of KeyboardInterrupt, or an empty string. The exception itself is
    gone by then, and with it what its traceback kept alive.
    """
    at, counted = 0, 0
    while counted >= at:
        at += 1
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
        pass   # set pending near the end of `act`, and delivered here
    finally:
        sys.unraisablehook = hook
    place: Place | None = swallowed[0] if swallowed else None
    interrupt = _interrupt_behind(raised)
    if interrupt is not None:
        place = _place(interrupt.__traceback__, swallowed=False)
    otherwise = "" if raised is None or isinstance(raised, KeyboardInterrupt) else repr(raised)
    del raised, interrupt   # its traceback has this frame: the collector alone would end what it keeps alive
    if place is not None and place.file == __file__:
        return None, "", counter.count
    return place, otherwise, counter.count


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _place(traceback: TracebackType | None, *, swallowed: bool) -> Place:
    assert traceback is not None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    return Place(code.co_filename, code.co_qualname, traceback.tb_lineno, traceback.tb_lasti, swallowed)


class _Counter:
    """Counts deciding instructions between `start` and `stop`, and sets SIGINT pending at one of them.

    `for` calls the iterator's function without looking for signals afterwards, as a call would: so the interrupt is not
    delivered in here.
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
