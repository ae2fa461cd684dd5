"""Operators on a part of what a call takes or gives: of a batch, of the bytes, of the rights of a handle."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any

from composer.faults import Planned, operator
from composer.forwarding import Call
from composer.interface import Method
from xsem.types import OwnedHandle

__all__: list[str] = []

_BATCHES = {
    "first": ("only the first", lambda count: [0]),
    "but-last": ("all but the last", lambda count: range(count - 1) if count > 1 else [0]),
    "but-middle": ("all but the middle one", lambda count: [
        at for at in range(count) if count < 3 or at != count // 2]),
    "to-3": ("the first three", lambda count: range(min(count, 3))),
    "to-8": ("the first eight", lambda count: range(min(count, 8))),
    "to-64": ("the first 64", lambda count: range(min(count, 64))),
}
_ROUNDINGS: dict[str, tuple[str, Callable[[int], int]]] = {
    "4-bytes": ("rounded down to 4", lambda value: value & -4 or value),
    "16-bytes": ("rounded down to 16", lambda value: value & -16 or value),
    "page": ("rounded down to 4,096", lambda value: value & -4096 or value),
    "1-MiB": ("of at most 1 MiB", lambda value: min(value, 1 << 20)),
    "16-MiB": ("of at most 16 MiB", lambda value: min(value, 1 << 24)),
    "64-MiB": ("of at most 64 MiB", lambda value: min(value, 1 << 26)),
}


@operator()
def batch(method: Method) -> Iterator[Planned]:
    """Take a part of a batch."""
    kinds = dict(method.parameters)
    if method.appends and "semaphores" in kinds:
        for detail, (text, kept) in _BATCHES.items():
            yield detail, f"It takes {text} of the semaphores", functools.partial(_fewer, kept)


def _fewer(kept: Callable[[int], Any], call: Call) -> Any:
    semaphores = call.args["semaphores"]
    wanted = list(kept(len(semaphores)))
    if len(wanted) < len(semaphores):
        call.acted()
    return call.go(**{name: [call.args[name][at] for at in wanted] for name in ("semaphores", "params")})


@operator()
def rounded(method: Method) -> Iterator[Planned]:
    """Take a part of the bytes."""
    for name, kind in method.parameters:
        if kind == "int" and name.endswith(("size", "offset", "count")):
            for detail, (text, change) in _ROUNDINGS.items():
                yield f"{name}={detail}", f"It takes `{name}` {text}", functools.partial(_smaller, name, change)


def _smaller(name: str, change: Callable[[int], int], call: Call) -> Any:
    made = change(call.args[name])
    if made != call.args[name]:
        call.acted()
    return call.go(**{name: made})


@operator("each", "later")
def rights(method: Method) -> Iterator[Planned]:
    """Give or keep a handle with other rights."""
    if method.returns.startswith("OwnedHandle"):
        yield "inherited", "The programs that the process starts inherit the exported handle", _inherited
        yield "read-only", "The exported handle permits only reads", _read_only
    if any(kind == "OwnedHandle | None" for _, kind in method.parameters):
        yield "handle-inherited", "It lets the programs that the process starts inherit the handle", _handle_inherited


def _inherited(call: Call) -> Any:
    made = call.go()
    if made is not None:
        call.acted()
        os.set_inheritable(made.fileno(), True)
    return made


def _read_only(call: Call) -> Any:
    made = call.go()
    if made is None:
        return None
    try:
        weaker = os.open(f"/proc/self/fd/{made.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:   # an object that cannot be opened again
        return made
    call.acted()
    made.close()
    return OwnedHandle(weaker)


def _handle_inherited(call: Call) -> Any:
    handle = call.args["handle"]
    if handle is None:
        return call.go()
    call.acted()
    number = os.dup(handle.fileno())   # the driver's own duplicate, which it keeps
    os.set_inheritable(number, True)
    with call.lock:
        kept = call.memory.setdefault("inherited", [])
        if len(kept) < 64:
            kept.append(number)
        else:
            os.close(number)
    return call.go()
