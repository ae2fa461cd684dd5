"""Recorded work: the capture of a stream, instantiated once and launched repeatedly with new values."""

# The capture uses relaxed mode: it forbids no call in any thread, and any thread can end it. Each signal and each wait
# is a separate node of the graph. The instance takes new parameters for a node between launches. Pending launches keep
# theirs (cuGraphExecExternalSemaphoresSignalNodeSetParams).

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from xsem.errors import BusyError, UnsupportedError
from xsem_cuda.context import Context
from xsem_cuda.results import call
from xsem_cuda.semaphores import PARAMS_SIZE, SemaphoreToken
from xsem_cuda.tokens import DriverObject
from xsem_cuda.words import WRITE, Operation

__all__ = ["OLDEST_DRIVER", "Graphs", "Recorded", "check_recordable"]

OLDEST_DRIVER: Final = 11040
"""The driver version with cuGraphInstantiateWithFlags, the bindings' cuGraphInstantiate. Semaphore nodes need 11.2."""


def check_recordable(semaphores: Sequence[SemaphoreToken], params: Sequence[Any]) -> None:
    """Refuse NvSciSync in a recording."""
    # Its fence stands for one signal, and no document says what a graph does with it.
    if any(not semaphore.plain and param.nvscisync_fence is not None
           for semaphore, param in zip(semaphores, params, strict=True)):
        raise UnsupportedError(
            "a recording cannot contain signals and waits of NvSciSync objects: a fence stands for one signal, and "
            "each replay needs another one. Append them outside of the recording, before and after its replay",
            reason="not_recordable", capability="recording.nvscisync")


Values = Mapping[int, tuple[int, int]]


class _SemaphoreParams(ctypes.Structure):
    """The layout of CUDA_EXT_SEM_SIGNAL_NODE_PARAMS and ..._WAIT_NODE_PARAMS."""

    _fields_ = (("semaphores", ctypes.c_void_p), ("params", ctypes.c_void_p), ("count", ctypes.c_uint))


class _WordParams(ctypes.Structure):
    """The layout of CUDA_BATCH_MEM_OP_NODE_PARAMS."""

    _fields_ = (("context", ctypes.c_void_p), ("count", ctypes.c_uint), ("params", ctypes.c_void_p),
                ("flags", ctypes.c_uint))


class _Slot:
    """The value of one semaphore in a node's parameters, for a wait (side 0) or a signal (1)."""

    __slots__ = ("now", "recorded", "semaphore", "side")

    def __init__(self, semaphore: int, side: int, at: int) -> None:
        self.semaphore = semaphore
        self.side = side
        self.now = ctypes.c_uint64.from_address(at)
        self.recorded = self.now.value


class _Node:
    """A node of signals or waits: its parameters, and whether the instance has them."""

    __slots__ = ("_native", "_params", "_set", "_slots", "_written")

    def __init__(self, native: Any, setter: Any, params: tuple[Any, ...], slots: Sequence[_Slot]) -> None:
        self._native = native
        self._set = setter
        self._params = params  # the struct, and what owns the memory of the slots
        self._slots = slots
        self._written = True

    def write(self, instance: Any, values: Values) -> None:
        """Set the values for the instance's next launch. A semaphore without a new value keeps its recorded one."""
        for slot in self._slots:
            given = values.get(slot.semaphore)
            value = slot.recorded if given is None else given[slot.side]
            if slot.now.value != value:
                slot.now.value = value
                self._written = False
        if not self._written:
            call(self._set, instance, self._native, self._params[0])
            self._written = True


# The bindings' view of the driver's parameters lacks the elements (12.9 and 13.5: they do not know the length).
def _semaphore_node(driver: Any, native: Any, side: int) -> _Node:
    """Return the node of a signal (side 1) or a wait (0) of external semaphores."""
    name = "Signal" if side else "Wait"
    given = call(getattr(driver, f"cuGraphExternalSemaphores{name}NodeGetParams"), native)
    there = _SemaphoreParams.from_address(given.getPtr())
    semaphores = list((ctypes.c_uint64 * there.count).from_address(there.semaphores))
    struct = getattr(driver, f"CUDA_EXTERNAL_SEMAPHORE_{name.upper()}_PARAMS")
    params = getattr(driver, f"CUDA_EXT_SEM_{name.upper()}_NODE_PARAMS")()
    params.extSemArray = [driver.CUexternalSemaphore(each) for each in semaphores]
    params.paramsArray = [struct() for _ in semaphores]
    params.numExtSems = there.count
    here = _SemaphoreParams.from_address(params.getPtr())
    ctypes.memmove(here.params, there.params, there.count * PARAMS_SIZE)
    return _Node(native, getattr(driver, f"cuGraphExecExternalSemaphores{name}NodeSetParams"), (params,),
                 [_Slot(each, side, here.params + at * PARAMS_SIZE) for at, each in enumerate(semaphores)])


def _word_node(driver: Any, native: Any) -> _Node:
    """Return the node of waits for words and of writes."""
    given = call(driver.cuGraphBatchMemOpNodeGetParams, native)
    there = _WordParams.from_address(given.getPtr())
    operations = (Operation * there.count)()
    ctypes.memmove(operations, there.params, ctypes.sizeof(operations))
    params = driver.CUDA_BATCH_MEM_OP_NODE_PARAMS()
    here = _WordParams.from_address(params.getPtr())
    here.context, here.count, here.flags = there.context, there.count, there.flags
    here.params = ctypes.addressof(operations)
    slots = [_Slot(each.address, int(each.operation == WRITE), ctypes.addressof(each) + Operation.value.offset)
             for each in operations]
    return _Node(native, driver.cuGraphExecBatchMemOpNodeSetParams, (params, operations), slots)


class Recorded(DriverObject):
    """A graph and its instance. The native handle is the instance's (CUgraphExec). `destroy` frees both."""

    __slots__ = ("_graph", "_nodes", "timeouts")

    def __init__(self, graph: Any, instance: Any, nodes: Sequence[_Node]) -> None:
        super().__init__(instance)
        self._graph = graph
        self._nodes = nodes
        self.timeouts: tuple[int, ...] = ()   # of its keyed-mutex waits, in milliseconds

    def write(self, values: Values) -> None:
        """Set the values of the next launch: (wait, signal) for each semaphore's handle."""
        for node in self._nodes:
            node.write(self.native, values)

    def destroy(self, driver: Any) -> None:
        """Destroy the instance and the graph."""
        try:
            call(driver.cuGraphExecDestroy, self.native)
        finally:
            call(driver.cuGraphDestroy, self._graph)


class Graphs:
    """Creates, launches and destroys the recordings of one stream."""

    def __init__(self, driver: Any, context: Context, stream: Any) -> None:
        self._driver = driver
        self._context = context
        self._stream = stream

    def begin(self) -> None:
        """Call cuStreamBeginCapture."""
        driver = self._driver
        if call(driver.cuStreamIsCapturing, self._stream) != driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE:
            raise BusyError("the stream is in a capture of the application: record after its end",
                            reason="capturing")
        call(driver.cuStreamBeginCapture, self._stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)

    def end(self) -> Recorded:
        """Call cuStreamEndCapture and cuGraphInstantiate. The capture ends also if this fails."""
        driver = self._driver
        try:
            graph = call(driver.cuStreamEndCapture, self._stream)
        except BusyError as error:
            raise BusyError(
                "the appended work cannot be recorded: the capture became invalid", reason="not_recordable",
                call=error.call, code=error.code, code_name=error.code_name,
                likely_causes=("the recorded work synchronised with this stream, or queried or freed an object of it",
                               "the recorded work continued on another stream, which did not rejoin this one"),
            ) from error
        try:
            nodes = self._semaphore_nodes(graph)
            # In the calling thread's default mode, an instantiation would invalidate another thread's capture.
            with self._context, self._context.quiet:
                instance = call(driver.cuGraphInstantiate, graph, 0)
        except BaseException:
            call(driver.cuGraphDestroy, graph)
            raise
        return Recorded(graph, instance, nodes)

    def replay(self, recorded: Recorded, values: Values) -> None:
        """Set the values that differ from the last launch's, and call cuGraphLaunch."""
        recorded.write(values)
        call(self._driver.cuGraphLaunch, recorded.native, self._stream)

    def release(self, recorded: Recorded) -> None:
        """Call cuGraphExecDestroy and cuGraphDestroy. Neither blocks (measured behind an unmet wait)."""
        with self._context.quiet:
            recorded.destroy(self._driver)

    def _semaphore_nodes(self, graph: Any) -> list[_Node]:
        """Return all semaphore nodes, also those of the application's own work: they take new values, too."""
        driver = self._driver
        types = driver.CUgraphNodeType
        kinds: dict[Any, Callable[[Any, Any], _Node]] = {
            types.CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL: partial(_semaphore_node, side=1),
            types.CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: partial(_semaphore_node, side=0),
            types.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: _word_node}
        _, count = call(driver.cuGraphGetNodes, graph)
        natives = call(driver.cuGraphGetNodes, graph, count)[0] if count else ()
        found = [(native, call(driver.cuGraphNodeGetType, native)) for native in natives]
        return [kinds[each](driver, native) for native, each in found if each in kinds]
