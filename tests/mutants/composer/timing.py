"""Operators on the time, the order, the number and the thread of a call."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

from composer.faults import Planned, operator
from composer.forwarding import Call
from composer.interface import Method
from composer.results import can_do_nothing, nothing

__all__: list[str] = []

SHORT_S = 0.02
LATE_S = 0.03
LONG_S = 0.3


@operator("each", "first", "later", "seventh", "many", "second-device", "other-process", "large")
def skip(method: Method) -> Iterator[Planned]:
    """Leave out the call."""
    if can_do_nothing(method):
        yield "", "It does nothing, and returns an empty result", _skipped


def _skipped(call: Call) -> Any:
    call.acted()
    return nothing(call)


@operator()
def delay(method: Method) -> Iterator[Planned]:
    """Block the caller before the call."""
    yield "20ms", "It takes 20 ms longer", _delayed
    yield "pending", "It returns when no appended wait is pending", _blocked


def _delayed(call: Call) -> Any:
    call.acted()
    time.sleep(SHORT_S)
    return call.go()


def _blocked(call: Call) -> Any:
    if call.method.name == "append_wait" and not call.composer.waits_pending():
        return call.go()
    while call.composer.waits_pending():
        call.acted()
        time.sleep(0.001)
    return call.go()


_blocked.tracks_waits = True   # type: ignore[attr-defined]


def _acts_later(method: Method) -> bool:
    return method.appends or (method.returns == "None" and method.name != "close")


@operator()
def reorder(method: Method) -> Iterator[Planned]:
    """Exchange two calls, or two arguments."""
    if _acts_later(method):
        yield "next", "It takes effect after the next such call, or after 30 ms", _after_the_next
    same = [(one, other) for (one, kind), (other, next_kind) in zip(method.parameters, method.parameters[1:],
                                                                    strict=False)
            if kind == next_kind and kind in ("int", "Token", "bool") and other != "want_fence"]
    if method.owner == "CopyQueue":
        ints = [name for name, kind in method.parameters if kind == "int"]
        tokens = [name for name, kind in method.parameters if kind == "Token"]
        same += [*itertools.pairwise(ints), *itertools.pairwise(tokens)]
    for one, other in dict.fromkeys(same):
        yield f"{one}-{other}", f"It exchanges `{one}` and `{other}`", functools.partial(_exchanged, one, other)
    for name, kind in method.parameters:
        if kind.startswith("Sequence["):
            yield f"{name}-reversed", f"It takes `{name}` in the reverse order", functools.partial(_reversed, name)
    if method.returns.startswith("Sequence["):
        yield "result-reversed", "It returns the reverse order", _reversed_result


def _after_the_next(call: Call) -> Any:
    with call.lock:
        held = call.own.setdefault("held", [])
        if held or call.args.get("want_fence"):
            before, held[:] = list(held), []
        else:
            call.acted()
            held.append(call)
            timer = threading.Timer(LATE_S, _flush, (call, held))
            timer.daemon = True
            timer.start()
            return None
        made = call.go()
        for each in before:
            each.go()
        return made


def _flush(call: Call, held: list[Call]) -> None:
    with call.lock, contextlib.suppress(Exception):
        before, held[:] = list(held), []
        for each in before:
            each.go()


def _exchanged(one: str, other: str, call: Call) -> Any:
    if call.args[one] != call.args[other]:
        call.acted()
    return call.go(**{one: call.args[other], other: call.args[one]})


def _reversed(name: str, call: Call) -> Any:
    given = call.args[name]
    if len(given) > 1:
        call.acted()
    return call.go(**{name: given[::-1]})


def _reversed_result(call: Call) -> Any:
    made = call.go()
    if len(made) > 1:
        call.acted()
    return made[::-1]


@operator("each", "first", "seventh")
def duplicate(method: Method) -> Iterator[Planned]:
    """Make the call twice."""
    if not method.makes and not method.releases:
        yield "", "It happens twice", _twice


def _twice(call: Call) -> Any:
    call.acted()
    if call.method.appends:
        call.go(want_fence=False)
    else:
        call.go()
    return call.go()


# ---- threads
@operator()
def wrong_thread(method: Method) -> Iterator[Planned]:
    """Depend on the thread of the caller."""
    yield "joined", "It runs on another thread while the caller waits", _joined
    if _acts_later(method) or method.name == "close":
        yield "foreign", "A thread other than that of the first call gets no effect", _foreign


def _joined(call: Call) -> Any:
    ended: list[Any] = []

    def body() -> None:
        try:
            ended.append((call.go(), None))
        except BaseException as error:
            ended.append((None, error))

    call.acted()
    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join()
    made, error = ended[0]
    if error is not None:
        raise error
    return made


def _foreign(call: Call) -> Any:
    with call.lock:
        first = call.memory.setdefault("thread", threading.get_ident())
    if first == threading.get_ident():
        return call.go()
    call.acted()
    return nothing(call)


# ---- early and late
@operator("each", "seventh", "second-device")
def early(method: Method) -> Iterator[Planned]:
    """Take effect, or report it, before the time."""
    if method.appends and not method.owner.startswith("Prepared"):
        yield "queue", "It goes to another queue of the device, so it does not wait for earlier work", _elsewhere
    if method.appends:
        yield "fence", "Its fence is reached at once", _reached_fence
    if method.appends:
        yield "fences", "It does not wait for any fence", functools.partial(_fewer_fences, slice(0, 0))
        yield "fences-but-first", "It waits for the first fence only", functools.partial(_fewer_fences, slice(0, 1))
        yield "fences-but-last", "It waits for the last fence only", functools.partial(_fewer_fences, slice(-1, None))
        yield "fences-to-4", "It waits for the first four fences only", functools.partial(_fewer_fences, slice(0, 4))
    if any(name == "timeout_ns" for name, _ in method.parameters):
        yield "timeout", "It returns at the end of a hundredth of the timeout", _short_timeout
    if method.makes:
        yield "release", "The object is released as soon as it is made", _released_at_once


def _elsewhere(call: Call) -> Any:
    call.acted()
    return getattr(call.queue(), call.method.name)(*call.args.values())


def _reached_fence(call: Call) -> Any:
    if not call.args["want_fence"]:
        return call.go()
    call.acted()
    call.go(want_fence=False)
    return call.queue().append_barrier((), True)


def _fewer_fences(kept: slice, call: Call) -> Any:
    fences = list(call.args["wait_fences"])
    if len(fences[kept]) < len(fences):
        call.acted()
    return call.go(wait_fences=fences[kept])


def _short_timeout(call: Call) -> Any:
    call.acted()
    return call.go(timeout_ns=call.args["timeout_ns"] // 100)


def _released_at_once(call: Call) -> Any:
    made = call.go()
    call.acted()
    release_made(call, made)
    return made


def release_made(call: Call, made: Any) -> None:
    """Release the object that a call has made, behind the back of the facade."""
    from composer.interface import methods
    from xsem import spi

    if call.method.makes in ("queue", "device"):
        made = made[1] if isinstance(made, tuple) else made
        made.composer.forward(made, next(each for each in methods() if each.key == (
            "QueueDriver.close" if isinstance(made, spi.QueueDriver) else "DeviceDriver.close")), {})
        return
    kind = "host_buffer" if call.method.name == "host_buffer" else call.method.makes
    wanted = {"host_buffer": "release_host_buffer", "buffer": "unmap_buffer"}.get(kind, "release_" + kind)
    release = next(each for each in methods() if each.name == wanted)
    token = made.token if isinstance(made, spi.Imported) else made[0] if isinstance(made, tuple) else made
    call.composer.forward(call.owner, release, {release.releases: token})


@operator("each", "seventh")
def late(method: Method) -> Iterator[Planned]:
    """Take effect, or report it, after the time."""
    if _acts_later(method) or method.name == "close":
        yield "30ms", "It returns at once, and takes effect 30 ms later", _thirty
    if method.returns == "bool":
        yield "true", "It returns true only 300 ms after it first could", _true_late
    if any(name == "timeout_ns" for name, _ in method.parameters):
        yield "timeout", "It returns 300 ms after the timeout", _long_timeout
    if method.appends:
        yield "fence", "Its fence is reached 300 ms late", _late_fence


def _thirty(call: Call) -> Any:
    if call.args.get("want_fence"):
        _drain(call)
        return call.go()
    call.acted()
    with call.lock:
        held = call.own.setdefault("late", [])
        held.append(call)
    timer = threading.Timer(LATE_S, _one_late, (call, held))
    timer.daemon = True
    timer.start()
    return None


def _one_late(call: Call, held: list[Call]) -> None:
    with call.lock, contextlib.suppress(Exception):
        if held:
            held.pop(0).go()


def _drain(call: Call) -> None:
    with call.lock:
        held = call.own.get("late", [])
        while held:
            held.pop(0).go()


def _true_late(call: Call) -> Any:
    made = call.go()
    if made:
        token = next(iter(call.args.values()), None)
        now = time.monotonic()
        with call.lock:
            since, _ = call.memory.setdefault(("true", id(token)), (now, token))   # the id of a living token is unique
        if now - since < LONG_S:
            call.acted()
            return False
    return made


def _long_timeout(call: Call) -> Any:
    made = call.go()
    if not made:
        call.acted()
        time.sleep(LONG_S)
    return made


def _late_fence(call: Call) -> Any:
    made = call.go()
    # The other queue waits for the real fence and then for an event of this process: only `host` can do that.
    if made is None or os.environ.get("XSEM_FAULT_BASE") == "cuda":
        return made
    call.acted()
    event, device = threading.Event(), call.owner.device.inner
    borrowed = device.borrow_event(event)
    fence = call.queue().append_barrier((made, borrowed), True)

    def later() -> None:
        with contextlib.suppress(Exception):
            while not device.wait_fence(made, 50_000_000):
                pass
        time.sleep(LONG_S)
        with contextlib.suppress(Exception):
            _release_fence(call, made)   # the late fence replaces it, and the facade releases only the late one
            device.release_fence(borrowed)
        event.set()

    threading.Thread(target=later, daemon=True).start()
    return fence


def _release_fence(call: Call, fence: Any) -> None:
    from composer.interface import methods

    release = next(each for each in methods() if each.key == "DeviceDriver.release_fence")
    call.composer.forward(call.owner.device, release, {"fence": fence})
