"""Appends of which the bridge of the device makes a part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Protocol, cast

from xsem.errors import UnsupportedError
from xsem.portable import Timeline
from xsem.runtime.bridge import Bridge, BridgedQueue
from xsem.runtime.device_state import DeviceState
from xsem.runtime.queues.operations import Append, Fence, FencedQueue
from xsem.runtime.queues.progress import Progress

__all__ = ["append_bridged", "refuse_captured"]


class AppendingQueue(BridgedQueue, FencedQueue, Protocol):
    """A queue that appends."""

    device_state: DeviceState
    progress: Progress


def append_bridged(
    queue: AppendingQueue, make: Callable[..., Fence | None], append: Append, params: Any, of_list: Any,
    kept: Sequence[Fence], lifetimes: Any, memories: Any, want_fence: bool, *rest: Any,
) -> Fence | None:
    """Append a wait or a signal by `make`, which is `Queue._append`. The caller holds the lock of the queue."""
    bridge = cast("Bridge", queue.device_state.bridge)
    values = [(cast("Timeline", state.page), cast("int", value)) for state, value in append.targets(params)
              if state in append.bridged]
    pages = [state.lifetime for state in append.bridged]
    if append.operation == "wait":
        wait = bridge.wait(queue, values, pages, lambda token: Fence(queue.device_state, token, queue, 0))
        if wait is None:
            return make(append, params, of_list, kept, lifetimes, memories, want_fence, *rest)
        fence = cast("Fence", wait.fence)
        try:
            return make(append, params, of_list, (*kept, fence), lifetimes, memories, want_fence, *rest)
        except BaseException as error:
            if isinstance(error, Exception) or not _may_have(queue, fence):
                bridge.withdraw(queue, wait)
            raise
    holds = bridge.hold(pages)
    seen: list[Fence] = []

    def appended(fence: Fence) -> None:
        seen.append(fence)
        bridge.signal(queue, values, holds, fence, fence.seq)

    try:
        made = make(append, params, of_list, kept, lifetimes, memories, True, *rest, appended)
    except BaseException as error:
        if not seen:
            last = queue.progress.operations[-1] if queue.progress.operations else None
            if isinstance(error, Exception) or last is None or last[1] is not append:
                bridge.end(holds)
            else:   # Ctrl-C: the driver may have the signal
                bridge.signal(queue, values, holds, None, last[0])
        raise
    return made if want_fence else None


def _may_have(queue: AppendingQueue, fence: Fence) -> bool:
    """Return whether the driver may have an operation that waits for the fence."""
    return any(fence in operation.kept for operation in queue.pending())


def refuse_captured(append: Append) -> NoReturn:
    """Refuse an append in a capture or a recording."""
    names = ", ".join(state.described for state in append.bridged)
    raise UnsupportedError(
        f"{names}: xsem makes this {append.operation} on the host, once, and not at each launch of a graph, so it "
        "cannot be captured or recorded; append it outside", reason="not_recordable", capability="recording.bridged")
