"""``xsem pending``: what running programs wait for, and who waits for whom."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from xsem.cli.status import BAD_ANSWER, DONE, NOT_TRIED
from xsem.cli.text import printable
from xsem.runtime.pending_server import address_of

__all__ = ["run"]

_PATIENCE_S: Final = 5.0
_PROC: Final = "/proc"


class _RefusedError(Exception):
    """A process cannot be asked; the message is one sentence."""


class _Wait(NamedTuple):
    """A wait that a list or a thread is held by."""

    pid: int
    where: str   # the list or the thread
    semaphore: dict[str, Any]
    age_s: float
    seq: int   # on its list, 0 for a wait of the host

    @property
    def wanted(self) -> str:
        """The semaphore and the value."""
        name, value = self.semaphore["name"], self.semaphore["value"]
        return f"{name}" if value is None else f"{name} to be {value}"


def run(pids: Sequence[int], *, everything: bool, as_json: bool) -> int:
    """Ask the processes, and print what they wait for. Return BAD_ANSWER if some wait for each other."""
    answers, problems = [], []
    for pid in pids or (_running() if everything and sys.platform == "linux" else ()):
        try:
            answers.append(ask(pid))
        except _RefusedError as problem:
            if pids:
                problems.append(str(problem))
    waits = [wait for answer in answers for wait in _waits(answer)]
    cycles = list(_cycles(answers, waits))
    if as_json:
        print(json.dumps({"schema": 1, "processes": answers, "problems": problems,
                          "cycles": [[wait._asdict() for wait in cycle] for cycle in cycles]}, indent=2))
    else:
        for line in (*problems, *_report(answers, waits, cycles)):
            text = line.lstrip(" ")
            print(" " * (len(line) - len(text)) + printable(text))
    if problems and not answers:
        return NOT_TRIED
    return BAD_ANSWER if cycles else DONE


# ---- asking
def _running() -> list[int]:
    """Return the processes in this network namespace that answer."""
    mine = f"@xsem-pending-{_namespace('self')}-"
    found = [line.rpartition(" ")[2] for line in Path(_PROC, "net/unix").read_text().splitlines()]
    return sorted({int(name.removeprefix(mine)) for name in found if name.startswith(mine)} - {os.getpid()})


def _namespace(pid: int | str, kind: str = "pid") -> int:
    return Path(_PROC, str(pid), "ns", kind).stat().st_ino


def ask(pid: int) -> dict[str, Any]:
    """Return the answer of a process."""
    if sys.platform != "linux":
        raise _RefusedError("programs can be asked on Linux only")
    try:
        namespace, network = _namespace(pid), _namespace(pid, "net")
        inner = int(next(line for line in Path(_PROC, str(pid), "status").read_text().splitlines()
                         if line.startswith("NSpid:")).split()[-1])
    except FileNotFoundError:
        raise _RefusedError(f"process {pid} does not run") from None
    except PermissionError:
        raise _RefusedError(f"process {pid} belongs to another user") from None
    if network != _namespace("self", "net"):
        raise _RefusedError(f"process {pid} is in another network namespace: ask it from there, for example with "
                       f"nsenter --net --target {pid}")
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(_PATIENCE_S)
            asking.connect(address_of(inner, namespace))
            parts = list(iter(lambda: asking.recv(1 << 16), b""))
    except ConnectionRefusedError:
        raise _RefusedError(f"process {pid} has opened no device of xsem") from None
    except TimeoutError:
        raise _RefusedError(f"process {pid} does not answer: it is stopped, or its interpreter is blocked") from None
    if not parts:
        raise _RefusedError(f"process {pid} belongs to another user")
    answer: dict[str, Any] = json.loads(b"".join(parts))
    answer["pid"] = pid
    return answer


# ---- who waits for whom
def _waits(answer: dict[str, Any]) -> Iterator[_Wait]:
    """Yield the first wait of each list that is not known to be met, and the waits of the host."""
    for each in answer["lists"]:
        for op in each["operations"]:
            unmet = [semaphore for semaphore in op["semaphores"] if op["operation"] in ("wait", "work")
                     and not _is_there(semaphore)]
            if unmet:
                yield _Wait(answer["pid"], each["list"], unmet[0], op["age_s"], op["seq"])
                break
    for each in answer["host_waits"]:
        thread = next((found["name"] for found in answer["threads"] if found["thread"] == each["thread"]), "a thread")
        for semaphore in each.get("semaphores", ()):
            if not _is_there(semaphore):
                yield _Wait(answer["pid"], f"the host ({thread})", semaphore, each["age_s"], 0)


def _is_there(semaphore: dict[str, Any]) -> bool:
    return semaphore["present"] is not None and semaphore["value"] is not None and (
        semaphore["present"] >= semaphore["value"])


def _signals(answers: Sequence[dict[str, Any]]) -> Iterator[tuple[int, str, int, dict[str, Any]]]:
    """Yield process, list, number and semaphore of each pending signal."""
    for answer in answers:
        for each in answer["lists"]:
            for op in each["operations"]:
                for semaphore in op["semaphores"] if op["operation"] == "signal" else op["signals"]:
                    yield answer["pid"], each["list"], op["seq"], semaphore


def _meets(signal: dict[str, Any], wait: dict[str, Any]) -> bool:
    same = signal["id"] == wait["id"] if wait["id"] else False
    return same and (wait["value"] is None or signal["value"] is None or signal["value"] >= wait["value"])


def _cycles(answers: Sequence[dict[str, Any]], waits: Sequence[_Wait]) -> Iterator[list[_Wait]]:
    """Yield each circle of waits, once."""
    signals = list(_signals(answers))

    def held_by(wait: _Wait) -> list[_Wait]:
        """Return the waits without which the awaited signal does not come."""
        queued = [(pid, where) for pid, where, seq, signal in signals if _meets(signal, wait.semaphore)]
        if queued:   # each of them is behind a wait of its list
            return [other for other in waits if (other.pid, other.where) in queued and other.seq]
        able = {each["pid"] for each in wait.semaphore["processes"] if not each["ended"]}
        return [other for other in waits if other.pid in able and not other.seq]   # its host waits

    seen: set[frozenset[tuple[int, str]]] = set()

    def walk(path: list[_Wait]) -> Iterator[list[_Wait]]:
        for other in held_by(path[-1]):
            if other in path:
                circle = path[path.index(other):]
                key = frozenset((wait.pid, wait.where) for wait in circle)
                if key not in seen:
                    seen.add(key)
                    yield circle
            else:
                yield from walk([*path, other])

    for wait in waits:
        yield from walk([wait])


# ---- the text
def _report(
    answers: Sequence[dict[str, Any]], waits: Sequence[_Wait], cycles: Sequence[Sequence[_Wait]]
) -> Iterator[str]:
    names = {answer["pid"]: f"{answer['name']} ({answer['pid']})" for answer in answers}
    for circle in cycles:
        yield "deadlock: " + "; ".join(
            f"{names[wait.pid]}, {wait.where}, waits for {wait.wanted}" for wait in circle)
    for answer in answers:
        held = [wait for wait in waits if wait.pid == answer["pid"]]
        pending = sum(each["pending"] for each in answer["lists"])
        yield f"{names[answer['pid']]}: waits: {len(held)}, pending operations: {pending}" + (
            "" if answer["driver_answers"] else "; its driver does not answer")
        for wait in held:
            present = wait.semaphore["present"]
            yield (f"  {wait.where} waits for {wait.wanted} since {wait.age_s:.1f} s"
                   + ("" if present is None else f"; it is {present}"))
            for line in _who(wait, answers, names):
                yield f"    {line}"
        for each in answer["threads"]:
            if each["stack"]:
                yield f"  thread {each['name']}: {each['stack'][0]}"
                yield from (f"    {line}" for line in each["stack"][1:4])


def _who(wait: _Wait, answers: Sequence[dict[str, Any]], names: dict[int, str]) -> Iterator[str]:
    for pid, where, seq, signal in _signals(answers):
        if _meets(signal, wait.semaphore):
            behind = pid == wait.pid and where == wait.where and seq > wait.seq
            yield f"{names[pid]}, {where}, has the signal" + (" behind this very wait" if behind else " pending")
    for each in wait.semaphore["processes"]:
        state = "has ended" if each["ended"] else "runs"
        yield f"process {each['pid']} could signal, and {state}"
