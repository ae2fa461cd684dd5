"""Operators on the objects and values of a call, and on what it leaves behind."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import resource
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from composer.faults import Planned, operator
from composer.forwarding import Call
from composer.interface import Method
from composer.timing import release_made
from xsem import spi
from xsem.types import MemoryDesc, MipmapDesc, OwnedHandle, SemaphoreDesc, SignalParams, WaitParams

__all__ = ["INT_CHANGES"]

_KINDS = {
    "semaphores": "semaphore", "wait_fences": "fence", "acquire": "memory", "release": "memory", "dst": "buffer",
    "src": "buffer", "token": "semaphore",
}
"""The kind of object of a parameter, where it differs from the parameter's name."""
_OF_THE_HOST = ("Timeline", "SharedMemory")
"""Objects of the host that xsem opens, and that a driver takes into use."""
_RECORDS = {
    "SemaphoreDesc": SemaphoreDesc, "MemoryDesc": MemoryDesc, "MipmapDesc": MipmapDesc,
    "Sequence[WaitParams]": WaitParams, "Sequence[SignalParams]": SignalParams, "ImageRegion": spi.ImageRegion,
}
INT_CHANGES: dict[str, tuple[str, Callable[[int], int]]] = {
    "plus-1": ("one more", lambda value: value + 1),
    "minus-1": ("one less", lambda value: value - 1 if value else 0),
    "32-bit": ("only the low 32 bits", lambda value: value & 0xFFFFFFFF),
    "0": ("0", lambda _value: 0),
}


# ---- objects
@operator("each", "second-device")
def wrong_object(method: Method) -> Iterator[Planned]:
    """Use another object."""
    for name, kind in method.parameters:
        if kind in ("Token", "Token | None"):
            yield name, f"It uses another object as `{name}`", functools.partial(_another, name)
        elif kind == "Sequence[Token]":
            yield f"{name}-first", f"It uses another object as the first of `{name}`", functools.partial(
                _another_of, name, 0)
            yield f"{name}-last", f"It uses another object as the last of `{name}`", functools.partial(
                _another_of, name, -1)
        elif kind in ("object", "Callable[[], object]", "OwnedHandle | None", *_OF_THE_HOST,
                      *_RECORDS) and "Params" not in kind:
            yield name, f"It uses the `{name}` of the call before", functools.partial(_before, name)
    if method.returns not in ("None", "bool") or method.appends:
        yield "result", "It returns the result of the call before", _result_before


def _another(name: str, call: Call) -> Any:
    other = call.composer.other(_KINDS.get(name, name), [call.args[name]])
    if other is None:
        return call.go()
    call.acted()
    return call.go(**{name: other})


def _another_of(name: str, at: int, call: Call) -> Any:
    given = list(call.args[name])
    other = call.composer.other(_KINDS.get(name, name), given)
    if not given or other is None:
        return call.go()
    call.acted()
    given[at] = other
    return call.go(**{name: given})


def _before(name: str, call: Call) -> Any:
    given = call.args[name]
    kept = os.dup(given.fileno()) if isinstance(given, OwnedHandle) else given
    with call.lock:
        before = call.memory.get("before")
        call.memory["before"] = kept
    if before is None or before is given:
        return call.go()
    call.acted()
    if isinstance(given, OwnedHandle):
        # The number stays, and means the file of the call before.
        os.dup2(before, given.fileno(), inheritable=False)
        os.close(before)
        return call.go()
    return call.go(**{name: before})


def _result_before(call: Call) -> Any:
    made = call.go()
    given = OwnedHandle(os.dup(made.fileno())) if isinstance(made, OwnedHandle) else made
    if made is None:
        return None
    with call.lock:
        before = call.memory.get("result")
        call.memory["result"] = given
    if before is None:
        return made
    call.acted()
    return before


# ---- values
@operator()
def wrong_value(method: Method) -> Iterator[Planned]:
    """Use or return another value."""
    for name, kind in method.parameters:
        if kind in ("int", "int | None"):
            for detail, (text, change) in INT_CHANGES.items():
                yield f"{name}={detail}", f"It takes {text} as `{name}`", functools.partial(_changed, name, change)
        elif kind == "bool":
            yield f"{name}=not", f"It takes the opposite of `{name}`", functools.partial(
                _changed, name, lambda value: not value)
        elif kind == "bytes":
            yield f"{name}=first", f"It takes only the first byte of `{name}`", functools.partial(
                _changed, name, lambda value: value[:1])
            yield f"{name}=reversed", f"It takes the bytes of `{name}` in reverse order", functools.partial(
                _changed, name, lambda value: value[::-1])
            yield f"{name}=flipped", f"It flips a bit of `{name}`", functools.partial(
                _changed, name, lambda value: bytes([value[0] ^ 1]) + value[1:])
        elif kind == "Any":   # the values of a prepared call
            for detail, (text, change) in INT_CHANGES.items():
                yield f"{name}={detail}", f"It takes {text} as each of `{name}`", functools.partial(
                    _changed, name, functools.partial(_each, change))
        elif kind == "Sequence[tuple[Token, int, int]]":
            for at, what in ((1, "wait"), (2, "signal")):
                for detail, (text, change) in INT_CHANGES.items():
                    yield f"{name}.{what}={detail}", f"It takes {text} as the values to {what}", functools.partial(
                        _changed, name, functools.partial(_in_tuples, at, change))
        elif kind.endswith("HandleType"):
            yield f"{name}=other", f"It takes another member as `{name}`", functools.partial(
                _changed, name, lambda value: next(each for each in type(value) if each is not value))
        elif kind in _RECORDS:
            yield from _field_changes(name, _RECORDS[kind], sequence=kind.startswith("Sequence["))
        elif kind not in _OBJECTS:
            raise ValueError(f"{method.key}: values.py needs changes of {kind}")
    yield from _result_changes(method)


_OBJECTS = ("Token", "Token | None", "Sequence[Token]", "object", "Callable[[], object]", "OwnedHandle | None",
            "Sequence[OwnedHandle]", *_OF_THE_HOST)


def _changed(name: str, change: Callable[[Any], Any], call: Call) -> Any:
    given = call.args[name]
    if given is None:
        return call.go()
    made = change(given)
    if made != given:
        call.acted()
    return call.go(**{name: made})


def _each(change: Callable[[int], int], values: Any) -> Any:
    if values is None:
        return None
    return tuple(map(change, values)) if isinstance(values, tuple) else change(values)


def _in_tuples(at: int, change: Callable[[int], int], values: Any) -> list[tuple[Any, ...]]:
    return [tuple(change(item) if place == at else item for place, item in enumerate(each)) for each in values]


def _field_changes(name: str, record: type, *, sequence: bool) -> Iterator[Planned]:
    for field in dataclasses.fields(record):
        changes: dict[str, tuple[str, Callable[[Any], Any]]] = {}
        annotation = str(field.type)
        if annotation in ("int", "int | None"):
            changes = dict(INT_CHANGES) if field.name in ("value", "allocation_size") else {
                "plus-1": INT_CHANGES["plus-1"]}
        elif annotation == "bool":
            changes = {"not": ("the opposite", lambda value: not value)}
        elif annotation.endswith("HandleType"):
            changes = {"other": ("another member", lambda value: next(e for e in type(value) if e is not value))}
        elif annotation in ("str | None", "_uuid.UUID | None"):
            changes = {"none": ("None", lambda _value: None)}
        elif "tuple" in annotation:
            changes = {"reversed": ("the reverse", lambda value: value[::-1])}
        elif annotation != "Handle | None":   # `wrong_object` has the handle
            changes = {"other": ("another member", _another_member)}
        for detail, (text, change) in changes.items():
            if sequence:
                yield f"{name}.{field.name}={detail}", f"It takes {text} as `{field.name}` of `{name}`", \
                    functools.partial(_changed, name, functools.partial(_in_records, field.name, change))
            else:
                yield f"{name}.{field.name}={detail}", f"It takes {text} as `{field.name}` of `{name}`", \
                    functools.partial(_changed, name, functools.partial(_in_record, field.name, change))


def _another_member(value: Any) -> Any:
    if isinstance(value, str):   # the format of an image; another size of a pixel
        return "uint8" if value == "float32" else "float32"
    return next((each for each in type(value) if each is not value), value) if hasattr(type(value), "__members__") \
        else value


def _in_record(name: str, change: Callable[[Any], Any], record: Any) -> Any:
    """Return a copy with another value. The checks of the record do not run: a driver would not run them either."""
    value = getattr(record, name)
    if value is None:
        return record
    made = object.__new__(type(record))
    for field in dataclasses.fields(record):
        object.__setattr__(made, field.name, getattr(record, field.name))
    object.__setattr__(made, name, change(value))
    return made


def _in_records(name: str, change: Callable[[Any], Any], records: Sequence[Any]) -> list[Any]:
    return [_in_record(name, change, each) for each in records]


def _result_changes(method: Method) -> Iterator[Planned]:
    if method.appends:
        yield "result=none", "It returns None where a fence is wanted", functools.partial(
            _other_result, lambda _made: None)
    elif method.returns == "bool":
        yield "result=not", "It returns the opposite", functools.partial(_other_result, lambda made: not made)
        yield "result=false", "It returns false", functools.partial(_other_result, lambda _made: False)
    elif method.returns == "int":
        for detail, (text, change) in INT_CHANGES.items():
            yield f"result={detail}", f"It returns {text}", functools.partial(_other_result, change)
    elif method.returns == "Imported":
        for state in ("taken", "left", "unknown"):
            yield f"result.handle={state}", f'It reports that the handle is "{state}"', functools.partial(
                _state, state)
    elif method.returns.startswith("tuple[Token, int"):
        for detail, (text, change) in {**INT_CHANGES, "plus-page": ("a page more", lambda value: value + 4096)}.items():
            yield f"result={detail}", f"It returns {text} as the number", functools.partial(
                _other_result, functools.partial(_number, change))
    elif method.returns in ("tuple[int, int]", "tuple[int, int] | None"):
        for at in range(2):
            yield f"result.{at}=plus-1", f"It returns one more as item {at}", functools.partial(
                _other_result, functools.partial(_item, at))
    elif method.returns == "Sequence[DeviceInfo]":
        yield "result=twice", "It lists each device twice", functools.partial(
            _other_result, lambda made: [*made, *made])
        for field in ("id", "backend", "index", "name", "uuid", "driver_version"):
            yield f"result.{field}", f"It lists another `{field}` each time", functools.partial(_other_info, field)
    elif method.returns == "Sequence[HealthCheck]":
        yield "result.ok", "It returns the opposite `ok` of each check", functools.partial(
            _other_result, lambda made: [dataclasses.replace(each, ok=not each.ok) for each in made])
        yield "result=raises", "It raises an exception", _raises
    elif method.returns == "Mapping[str, str]":
        yield "result=ints", "It returns values that are not strings", functools.partial(
            _other_result, lambda _made: {"fact": 1})
        yield "result=raises", "It raises an exception", _raises
    elif method.returns == "Hashable | None":
        yield "result=fresh", "It returns another identity each time", functools.partial(
            _other_result, lambda _made: object())


def _other_result(change: Callable[[Any], Any], call: Call) -> Any:
    made = call.go()
    if made is None and call.method.appends:
        return None
    changed = change(made)
    if changed != made:
        call.acted()
    return changed


def _number(change: Callable[[int], int], made: Any) -> Any:
    return made if made[1] is None else (made[0], change(made[1]))


def _item(at: int, made: Any) -> Any:
    return made if made is None else tuple(value + (place == at) for place, value in enumerate(made))


def _other_info(field: str, call: Call) -> Any:
    with call.lock:
        turn = call.memory["turn"] = call.memory.get("turn", 0) + 1
    call.acted()
    return [_in_record(field, lambda value: value + turn if isinstance(value, int) else f"{value}{turn}", each)
            if getattr(each, field) is not None else each for each in call.go()]


def _raises(call: Call) -> Any:
    call.acted()
    raise RuntimeError("a fault of the backend")


def _state(state: Any, call: Call) -> Any:
    made = call.go()
    if made.handle != state and call.args.get("handle", call.args.get("handles")) is not None:
        call.acted()
    return spi.Imported(made.token, handle=state)


# ---- what stays behind
@operator("each", "seventh")
def leak(method: Method) -> Iterator[Planned]:
    """Leave something behind."""
    yield "fd", "It leaves a file descriptor open", _fd_left
    if method.makes or method.releases:
        yield "thread", "It leaves a thread behind", _thread_left
    if method.makes:
        yield "object", "It makes a second object that is never released", _object_left
    if any(kind == "OwnedHandle | None" for _, kind in method.parameters):
        yield "handle", "It leaves the handle open and reports that it was taken", _handle_left


def _fd_left(call: Call) -> Any:
    call.acted()
    with call.lock:
        count = call.memory["fds"] = call.memory.get("fds", 0) + 1
    # More would end every process with "too many open files", which any check finds.
    if count <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2:
        os.open(os.devnull, os.O_RDONLY)
    return call.go()


def _thread_left(call: Call) -> Any:
    call.acted()
    with call.lock:
        count = call.memory["threads"] = call.memory.get("threads", 0) + 1
    if count <= 200:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    return call.go()


def _object_left(call: Call) -> Any:
    made = call.go()
    call.acted()
    with contextlib.suppress(Exception):
        second = call.go()
        with call.lock:
            call.memory.setdefault("objects", []).append(second)
    return made


def _with_duplicate(call: Call, handle: OwnedHandle) -> spi.Imported:
    """Make the call with a duplicate of the handle, and settle the duplicate."""
    own = OwnedHandle(os.dup(handle.fileno()))
    imported: spi.Imported = call.go(handle=own)
    if imported.handle == "taken":
        own.detach()
    else:
        own.close()
    return imported


def _handle_left(call: Call) -> Any:
    handle = call.args["handle"]
    if handle is None:
        return call.go()
    call.acted()
    imported = _with_duplicate(call, handle)
    return spi.Imported(imported.token, handle="taken")


@operator("each", "seventh")
def double_free(method: Method) -> Iterator[Planned]:
    """Release something twice."""
    if method.releases:
        yield "twice", "It releases the object twice", _released_twice
    if method.makes and method.makes not in ("device", "queue"):
        yield "reused", "It releases the object that it made before the last one, as a reused number would", _reused
    if any(kind == "OwnedHandle | None" for _, kind in method.parameters):
        yield "handle", "It closes the handle and reports that it was left", _handle_closed
    if method.returns.startswith("OwnedHandle"):
        yield "result", "It returns a handle that is closed already", _closed_result


def _released_twice(call: Call) -> Any:
    call.acted()
    call.go()
    return call.go()


def _reused(call: Call) -> Any:
    made = call.go()
    with call.lock:
        before, call.memory["made"] = call.memory.get("made"), made
    if before is not None:
        call.acted()
        with contextlib.suppress(Exception):
            release_made(call, before)
    return made


def _handle_closed(call: Call) -> Any:
    handle = call.args["handle"]
    if handle is None:
        return call.go()
    call.acted()
    imported = _with_duplicate(call, handle)
    with contextlib.suppress(OSError):
        os.close(handle.fileno())
    return spi.Imported(imported.token, handle="left")


def _closed_result(call: Call) -> Any:
    made = call.go()
    if made is None:
        return None
    call.acted()
    os.close(made.fileno())
    return made
