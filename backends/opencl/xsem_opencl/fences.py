"""Fences: events of the backend or of the application."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_int32, sizeof
from typing import Any

from xsem.errors import BadArgumentError, WrongDeviceError
from xsem_opencl import cl
from xsem_opencl.core import Core, array
from xsem_opencl.results import failed_work

__all__ = ["Fence", "UserEvents", "event_list", "foreign_event", "host_fence", "is_done", "reach", "release"]


class Fence:
    """A fence: one event, with one reference owned by this object."""

    __slots__ = ("handle", "of_host", "source")

    def __init__(self, handle: int, source: object | None = None, *, of_host: bool = False) -> None:
        self.handle = handle   # cl_event
        self.of_host = of_host   # a user event
        self.source = source   # the application's event object, kept alive


def event_list(fences: Sequence[Fence]) -> tuple[int, Any]:
    """Return number and array in the form of the clEnqueue… functions."""
    return len(fences), array([fence.handle for fence in fences])


def is_done(core: Core, fence: Fence) -> bool:
    """Call clGetEventInfo for the execution status."""
    status = c_int32()
    core.api.do("clGetEventInfo", fence.handle, cl.EVENT_COMMAND_EXECUTION_STATUS, sizeof(status), byref(status), None)
    if status.value < 0:
        raise failed_work(status.value)
    return status.value == cl.COMPLETE


def host_fence(core: Core) -> Fence:
    """Call clCreateUserEvent."""
    return Fence(core.api.make("clCreateUserEvent", core.context), of_host=True)


def reach(core: Core, fence: Fence) -> None:
    """Call clSetUserEventStatus."""
    core.api.do("clSetUserEventStatus", fence.handle, cl.COMPLETE)


class UserEvents:
    """The user events before the next command of a queue, with one reference to each."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._fences: list[Fence] = []

    def add(self, fences: Sequence[Fence]) -> None:
        """Note the user events among the fences of an enqueued command."""
        for fence in fences:
            if fence.of_host:
                self._core.api.do("clRetainEvent", fence.handle)
                self._fences.append(Fence(fence.handle))

    def unset(self) -> bool:
        """Return whether one of them is not set."""
        while self._fences and is_done(self._core, self._fences[0]):
            release(self._core, self._fences.pop(0))
        return bool(self._fences)

    def close(self) -> None:
        """Release the references."""
        while self._fences:
            release(self._core, self._fences.pop())


def release(core: Core, fence: Fence) -> None:
    """Call clReleaseEvent, and drop the reference to a borrowed event."""
    fence.source = None
    core.api.do("clReleaseEvent", fence.handle)


def foreign_event(core: Core, native: object) -> Fence:
    """Return a fence for the application's pyopencl.Event, or for a cl_event as an int."""
    if isinstance(native, core.api.library.pyopencl.Event):
        handle = native.int_ptr
    elif isinstance(native, int) and not isinstance(native, bool):
        handle = native
    else:
        raise BadArgumentError(
            f"{type(native).__name__} is not an event: a pyopencl.Event or a cl_event as an int is needed",
            reason="not_an_event",
        )
    if handle <= 0:
        raise BadArgumentError("the event is null", reason="null_event")
    api = core.api
    if api.number("clGetEventInfo", handle, cl.EVENT_COMMAND_TYPE) == cl.COMMAND_USER:
        # Measured on an H200: with a user event in its list, clEnqueueSignalSemaphoresKHR returned when the event was
        # set, after 2 s.
        raise BadArgumentError(
            "this is a user event, which the host sets: NVIDIA's driver would hold this thread in every append that "
            "waits for it. Set it first, or pass the event of a command",
            reason="user_event",
        )
    context = api.number("clGetEventInfo", handle, cl.EVENT_CONTEXT)
    if context != core.context:
        raise WrongDeviceError(
            "the event belongs to another context", expected=f"context {core.context:#x}",
            actual=f"context {context:#x}", reason="wrong_context",
            likely_causes=("pass the context that it belongs to: open_device('opencl', native=context)",),
        )
    queue = api.number("clGetEventInfo", handle, cl.EVENT_COMMAND_QUEUE)
    if queue:
        # The command may still be in the host. A queue that waits for its event does not flush the command's queue.
        core.flush(queue)
    api.do("clRetainEvent", handle)   # the fence's own reference; the application keeps its own
    return Fence(handle, source=native)
