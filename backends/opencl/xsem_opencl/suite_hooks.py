"""Native queues and events, for the conformance suite."""

from __future__ import annotations

from typing import Any

from xsem.spi import NativeEvent, NativeQueue, SuiteHooks
from xsem_opencl.core import Core

__all__ = ["OpenCLHooks"]


# OpenCL does not support failing work that stops a queue: if a user event fails, only the commands that wait for the
# event end with an error. Later commands of the queue run (measured on PoCL).
class OpenCLHooks(SuiteHooks):
    """Queues and events of pyopencl, in the context of a device."""

    def __init__(self, core: Core) -> None:
        self._pyopencl = core.api.library.pyopencl
        self._context = self._pyopencl.Context.from_int_ptr(core.context)
        self._device = self._pyopencl.Device.from_int_ptr(core.device)

    def native_queue(self) -> NativeQueue:
        """Create a queue in the context of the device."""
        return self._queue_of(self._context)

    def foreign_queue(self) -> NativeQueue:
        """Create a queue in another context of the same device."""
        return self._queue_of(self._pyopencl.Context([self._device]))

    def _queue_of(self, context: Any) -> NativeQueue:
        queue = self._pyopencl.CommandQueue(context, self._device)

        def works() -> bool:
            self._pyopencl.enqueue_marker(queue).wait()
            return True

        # pyopencl releases the queue with its object.
        return NativeQueue(stream=queue, handle=queue.int_ptr, works=works, simultaneous=True)

    def native_event(self) -> NativeEvent:
        """Enqueue a marker behind a user event."""
        queue, gate = self._pyopencl.CommandQueue(self._context, self._device), self._pyopencl.UserEvent(self._context)
        marker = self._pyopencl.enqueue_marker(queue, wait_for=[gate])
        complete = self._pyopencl.command_execution_status.COMPLETE

        def reach() -> None:
            if gate.command_execution_status != complete:   # OpenCL permits one change of the status
                gate.set_status(complete)

        def works() -> bool:
            return bool(marker.command_execution_status == complete)

        def close() -> None:
            reach()
            queue.finish()

        return NativeEvent(event=marker, reach=reach, works=works, close=close)
