"""``xsem pending``: what running programs wait for, and who waits for whom."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from xsem.cli.status import BAD_ANSWER, DONE, NOT_TRIED
from xsem.cli.text import printable
from xsem.data.peers import peer_pid
from xsem.runtime.pending_server import address_of

__all__ = ["run"]

_PATIENCE_S: Final = 5.0
_AGAIN_S: Final = 0.2
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
    stack: list[str]   # of the append, if a trace is recorded

    @property
    def wanted(self) -> str:
        """The semaphore and the value."""
        name, value = self.semaphore["name"], self.semaphore["value"]
        return f"{name}" if value is None else f"{name} to be {value}"

    @property
    def key(self) -> tuple[Any, ...]:
        """What is the same as long as the wait lasts."""
        return self.pid, self.where, self.seq, self.semaphore["id"], self.semaphore["name"], self.semaphore["value"]


class _Circle(NamedTuple):
    """Waits of which each one holds the signal for the one before."""

    waits: list[_Wait]
    possible: bool   # only: a signal is not appended yet, and another process could make it


def run(pids: Sequence[int], *, everything: bool, as_json: bool) -> int:
    """Ask the processes, and print what they wait for. Return BAD_ANSWER if some wait for each other."""
    problems: list[str] = []
    if everything:
        pids = _running(problems)
    answers = list(_asked(pids, None if everything else problems))
    waits = [wait for answer in answers for wait in _waits(answer)]
    circles = _lasting(list(_circles(answers, waits)))
    if as_json:
        print(json.dumps({"schema": 1, "processes": answers, "problems": problems,
                          "cycles": [{"possible": each.possible, "waits": [wait._asdict() for wait in each.waits]}
                                     for each in circles]}, indent=2))
    else:
        for line in (*problems, *_report(answers, waits, circles)):
            text = line.lstrip(" ")
            print(" " * (len(line) - len(text)) + printable(text))
    if problems and not answers:
        return NOT_TRIED
    return BAD_ANSWER if circles else DONE


# ---- asking
def _running(problems: list[str]) -> list[int]:
    """Return the processes in this network namespace that answer."""
    try:
        mine = address_of("", _namespace("self")).replace("\0", "@")   # as the list below writes it
        lines = Path(_PROC, "net/unix").read_text(errors="replace").splitlines()
    except OSError as error:
        problems.append(f"the programs cannot be found: {error.filename}: {error.strerror}")
        return []
    found = {line.rpartition(" ")[2] for line in lines}
    numbers = {name.removeprefix(mine) for name in found if name.startswith(mine)}
    return sorted({int(each) for each in numbers if each.isascii() and each.isdigit()} - {os.getpid()})


def _asked(pids: Sequence[int], problems: list[str] | None) -> Iterator[dict[str, Any]]:
    """Yield the answers, and add a sentence for each process that gives none."""
    for pid in pids:
        try:
            yield ask(pid)
        except _RefusedError as problem:
            if problems is not None:
                problems.append(str(problem))


def _namespace(pid: int | str, kind: str = "pid") -> int:
    return Path(_PROC, str(pid), "ns", kind).stat().st_ino


def ask(pid: int) -> dict[str, Any]:
    """Return the answer of a process."""
    if sys.platform != "linux":
        raise _RefusedError("programs can be asked on Linux only")
    try:
        namespace, network = _namespace(pid), _namespace(pid, "net")
        status = Path(_PROC, str(pid), "status").read_text(errors="replace").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        raise _RefusedError(f"process {pid} does not run") from None
    except PermissionError:
        raise _RefusedError(f"process {pid} belongs to another user") from None
    except OSError as error:
        raise _RefusedError(f"process {pid} cannot be asked: {error.strerror}") from None
    if network != _namespace("self", "net"):
        raise _RefusedError(f"process {pid} is in another network namespace: ask it from there, for example with "
                            f"nsenter --net --target {pid}")
    # Old systems have no namespaces of processes, and so no such line.
    inner = int(next((line for line in status if line.startswith("NSpid:")), str(pid)).split()[-1])
    try:
        answer = _received(pid, address_of(inner, namespace))
    except ConnectionRefusedError:
        raise _RefusedError(f"process {pid} has opened no device of xsem") from None
    except TimeoutError:
        raise _RefusedError(f"process {pid} does not answer: it is stopped, or its interpreter is blocked") from None
    except (OSError, ValueError):
        raise _RefusedError(f"process {pid} has not answered in full: perhaps it ends") from None
    answer["pid"] = pid
    return answer


def _received(pid: int, address: str) -> dict[str, Any]:
    if sys.platform != "linux":
        raise OSError
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(_PATIENCE_S)
        asking.connect(address)
        peer = peer_pid(asking)
        if peer != pid:   # any program can take the address
            raise _RefusedError(f"process {pid} cannot be asked: process {peer} has its address")
        parts = list(iter(lambda: asking.recv(1 << 16), b""))
    if not parts:
        raise _RefusedError(f"process {pid} belongs to another user, or ends")
    answer: dict[str, Any] = json.loads(b"".join(parts))
    if answer["version"] != 1:
        raise _RefusedError(f"process {pid} has another version of xsem, and answers in another form")
    return answer


# ---- who waits for whom
def _waits(answer: dict[str, Any]) -> Iterator[_Wait]:
    """Yield the first wait of each list that is not known to be met, and the waits of the host."""
    for each in answer["lists"]:
        for op in each["operations"]:
            unmet = [semaphore for semaphore in op["semaphores"] if op["operation"] in ("wait", "work")
                     and not _is_there(semaphore)]
            if unmet:
                yield _Wait(answer["pid"], each["list"], unmet[0], op["age_s"], op["seq"],
                            op.get("stack", []))
                break
    for each in answer["host_waits"]:
        thread = next((found["name"] for found in answer["threads"] if found["thread"] == each["thread"]), "a thread")
        for semaphore in each.get("semaphores", ()):
            if not _is_there(semaphore):
                yield _Wait(answer["pid"], f"the host ({thread})", semaphore, each["age_s"], 0, [])


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


def _circles(answers: Sequence[dict[str, Any]], waits: Sequence[_Wait]) -> Iterator[_Circle]:
    """Yield one shortest circle of each group of waits that all wait for each other."""
    signals: dict[str, list[tuple[int, str, int, dict[str, Any]]]] = defaultdict(list)
    for each in _signals(answers):
        signals[each[3]["id"]].append(each)
    lists = {(wait.pid, wait.where): number for number, wait in enumerate(waits) if wait.seq}
    hosts: dict[int, list[int]] = defaultdict(list)
    for number, wait in enumerate(waits):
        if not wait.seq:
            hosts[wait.pid].append(number)
    possible: set[int] = set()

    def held_by(number: int) -> list[int]:
        """Return the waits without which the awaited signal does not come."""
        wanted = waits[number].semaphore
        queued = [each for each in signals[wanted["id"]] if _meets(each[3], wanted)]
        if queued:
            held = [lists.get((pid, where)) for pid, where, _, _ in queued]
            behind = [at for at, (_, _, seq, _) in zip(held, queued, strict=True)
                      if at is not None and waits[at].seq < seq]
            return behind if len(behind) == len(queued) else []   # one that no wait holds comes
        possible.add(number)
        return [at for each in wanted["processes"] if not each["ended"] for at in hosts[each["pid"]]]

    edges = [held_by(number) for number in range(len(waits))]
    before = [_before(edges, number) for number in range(len(waits))]
    told: set[int] = set()
    for number, ways in enumerate(before):
        if number in ways and number not in told:
            group = {other for other in ways if number in before[other]}
            told |= group
            circle = min((_back(before[other], other) for other in group if other in before[other]), key=len)
            yield _Circle([waits[each] for each in circle], bool(possible.intersection(circle)))


def _before(edges: Sequence[Sequence[int]], start: int) -> dict[int, int]:
    """Return the step before each one that can be reached, on a shortest way from the start."""
    found, left = {}, deque([start])
    while left:
        at = left.popleft()
        for step in edges[at]:
            if step not in found:
                found[step] = at
                left.append(step)
    return found


def _back(before: dict[int, int], start: int) -> list[int]:
    """Return the circle through the start."""
    circle = [start]
    while (at := before[circle[-1]]) != start:
        circle.append(at)
    return [start, *reversed(circle[1:])]


def _lasting(circles: Sequence[_Circle]) -> list[_Circle]:
    """Return the circles that are there a little later, too: the processes were asked one after the other."""
    if not circles:
        return []
    time.sleep(_AGAIN_S)
    pids = sorted({wait.pid for each in circles for wait in each.waits})
    later = {wait.key: wait.age_s for answer in _asked(pids, None) for wait in _waits(answer)}
    return [each for each in circles if all(later.get(wait.key, 0.0) >= wait.age_s + _AGAIN_S for wait in each.waits)]


# ---- the text
def _report(
    answers: Sequence[dict[str, Any]], waits: Sequence[_Wait], circles: Sequence[_Circle]
) -> Iterator[str]:
    names = {answer["pid"]: f"{answer['name']} ({answer['pid']})" for answer in answers}
    for circle in circles:
        yield ("possible deadlock: " if circle.possible else "deadlock: ") + "; ".join(
            f"{names[wait.pid]}, {wait.where}, waits for {wait.wanted}" for wait in circle.waits)
    for answer in answers:
        held = [wait for wait in waits if wait.pid == answer["pid"]]
        pending = sum(each["pending"] for each in answer["lists"])
        yield f"{names[answer['pid']]}: waits: {len(held)}, pending operations: {pending}" + (
            "" if answer["driver_answers"] else "; its driver does not answer")
        for wait in held:
            present = wait.semaphore["present"]
            yield (f"  {wait.where} waits for {wait.wanted} since {wait.age_s:.1f} s"
                   + ("" if present is None else f"; it is {present}"))
            for line in wait.stack[:1]:
                yield f"    appended by {line}"
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
