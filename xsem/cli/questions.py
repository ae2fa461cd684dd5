"""Questions to plugins, each in its own process. A plugin that hangs or crashes does not stop the command."""

# `ask` starts all processes at once. Each process sends its answer in parts. If a part takes longer than the patience,
# `ask` aborts the process. `faulthandler` then writes the stack of the process, as after a crash. The command itself
# imports no plugin.

from __future__ import annotations

import faulthandler
import importlib
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Final

__all__ = ["PATIENCE_S", "Answer", "ask", "innermost"]

PATIENCE_S: Final = 3.5   # for one part of an answer; the sum with the start of the command is below 5 s
_GRACE_S: Final = 0.25   # for the end of a process after its signal
_START_S: Final = 30.0   # for a new interpreter and its imports; a fork needs neither
_END: Final = "end of the answer"
_FRAME: Final = re.compile(r'  File "(.+)", line (\d+) in (.+)')


@dataclass(frozen=True)
class Answer:
    """The answer of one process."""

    parts: Sequence[Any]   # those that the process sent before its end
    failure: str | None    # the reason why the answer is incomplete


def ask(question: str, subjects: Iterable[str], patience_s: float = PATIENCE_S) -> dict[str, Answer]:
    """Ask about several subjects at the same time: ``answer(subject)`` of the module `question` yields the parts."""
    asked: dict[str, _Asked] = {}
    try:
        for name in subjects:
            asked[name] = _start(question, name, patience_s)
        return {name: each.answer(patience_s) for name, each in asked.items()}
    finally:
        for each in asked.values():
            each.end()


@dataclass
class _Asked:
    process: Any
    answers: Any
    trace: IO[bytes]
    deadline: float
    parts: list[Any] = field(default_factory=list)

    def answer(self, patience_s: float) -> Answer:
        try:
            while self.answers.poll(max(0.0, self.deadline - time.monotonic())):
                part = self.answers.recv()
                if part == _END:
                    return Answer(self.parts[1:], None)
                self.parts.append(part)
                # A part can wait while `ask` reads another answer. So the deadline can be late, but never early.
                self.deadline = time.monotonic() + patience_s
        except (EOFError, BrokenPipeError):   # at the end of the pipe, poll() raises BrokenPipeError on Windows
            return Answer(self.parts[1:], self._ending())
        if self.process.exitcode is not None:   # a process that a plugin has started keeps the pipe open
            return Answer(self.parts[1:], self._ending())
        if sys.platform != "win32" and self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGABRT)
            self.process.join(_GRACE_S)
        return Answer(self.parts[1:], f"did not answer within {patience_s:g} s{self._where()}")

    def _ending(self) -> str:
        self.process.join(_GRACE_S)
        status = self.process.exitcode
        if status == -signal.SIGINT:   # Ctrl-C in one process ends the command
            raise KeyboardInterrupt
        if status is None:
            return "closed the pipe of its answer"
        if status >= 0:
            return f"ended its process with status {status}"
        name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
        return f"crashed with {name}{self._where()}"

    def _where(self) -> str:
        self.trace.seek(0)
        return innermost(self.trace.read().decode(errors="replace"))

    def end(self) -> None:
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join(_GRACE_S)   # a process in a system call of the driver may end later
        self.answers.close()
        self.trace.close()


def innermost(trace: str) -> str:
    """Return the innermost Python frame of the thread that got a signal, as ", in FUNCTION (FILE, line LINE)"."""
    lines = trace.splitlines()
    while lines and not lines[0].startswith("Current thread "):
        del lines[0]
    frame = next(filter(None, map(_FRAME.fullmatch, lines)), None)
    return "" if frame is None else f", in {frame[3]} ({frame[1]}, line {frame[2]})"


def _new_file() -> IO[bytes]:
    # At the limit on open files, tempfile says that no folder is usable.
    if sys.platform == "linux":
        return os.fdopen(os.memfd_create("xsem"), "w+b")
    return tempfile.TemporaryFile()


def _start(question: str, subject: str, patience_s: float) -> _Asked:
    # At this point, the command has one thread, no plugin and no vendor's library.
    forks = sys.platform == "linux"
    context: Any = multiprocessing.get_context("fork" if forks else "spawn")
    ours, theirs = context.Pipe(duplex=False)
    trace = _new_file()   # `_Asked.end` closes it
    try:
        process = context.Process(target=_reply, daemon=True, args=(
            question, subject, theirs, trace.fileno() if forks else None))
        process.start()
    except BaseException:
        ours.close()
        trace.close()
        raise
    finally:
        theirs.close()
    return _Asked(process, ours, trace, time.monotonic() + (patience_s if forks else max(_START_S, patience_s)))


def _reply(question: str, subject: str, out: Any, trace: int | None) -> None:
    """Send the parts of the answer."""
    # The text that a plugin or a vendor's library prints is not part of the output.
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    os.environ.pop("XSEM_TRACE", None)   # this process does not belong to the program, and its end would cut a trace
    if sys.platform != "win32":
        signal.signal(signal.SIGINT, signal.SIG_DFL)   # the asking process handles Ctrl-C
    if trace is not None:
        faulthandler.enable(trace)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    module = importlib.import_module(f"xsem.cli.{question}")
    out.send(None)   # from now on, the patience counts
    for part in module.answer(subject):
        out.send(part)
    out.send(_END)   # its absence tells of a plugin that ends the process with status 0
    # The answer is complete. A vendor's library could hang or crash at the exit of the interpreter.
    sys.stderr.flush()
    os._exit(0)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
