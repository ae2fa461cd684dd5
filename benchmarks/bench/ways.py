"""The ways to signal or wait. Each way takes the first value and the number of calls, and returns seconds."""

# Each call has a new value for each semaphore. Each loop is the code of a careful user of the way. All loops contain
# the common part, for example the list of values for several semaphores.

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Final, Literal, TypeAlias

from bench.rig import Rig, Shared

__all__ = ["C_LOOP", "DOCUMENTED", "REUSED", "XSEM", "Way", "What", "ways"]

C_LOOP: Final = "a: C loop"
DOCUMENTED: Final = "b: cuda.bindings, params built"
REUSED: Final = "c: cuda.bindings, params reused"
XSEM: Final = "d: xsem"

What: TypeAlias = Literal["signal", "wait"]
Way: TypeAlias = Callable[[int, int], float]


def ways(rig: Rig, shared: Sequence[Shared], what: What) -> dict[str, Way]:
    """Return the ways for this machine. `C_LOOP` needs the loop in C."""
    found = {DOCUMENTED: _documented(rig, shared, what), REUSED: _reused(rig, shared, what),
             XSEM: _xsem(rig, shared, what)}
    if rig.c_loop is not None:
        found[C_LOOP] = _c_loop(rig, shared, what)
    return dict(sorted(found.items()))


def _c_loop(rig: Rig, shared: Sequence[Shared], what: What) -> Way:
    loop = rig.c_loop
    assert loop is not None
    handles = [each.here.native_handle for each in shared]

    def way(first: int, calls: int) -> float:
        return loop.semaphores(wait=what == "wait", handles=handles, stream=rig.commands.native_handle, first=first,
                               calls=calls)

    return way


def _parts(rig: Rig, what: What) -> tuple[Any, Any]:
    """Return the driver's function, and the class of its parameters."""
    driver = rig.driver
    if what == "signal":
        return driver.cuSignalExternalSemaphoresAsync, driver.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS
    return driver.cuWaitExternalSemaphoresAsync, driver.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS


def _documented(rig: Rig, shared: Sequence[Shared], what: What) -> Way:
    call, params_class = _parts(rig, what)
    natives, stream, count = [each.native for each in shared], rig.stream, len(shared)
    success = rig.driver.CUresult.CUDA_SUCCESS

    def way(first: int, calls: int) -> float:
        began = perf_counter()
        for value in range(first, first + calls):
            values = [value] * count
            batch = []
            for each in values:
                params = params_class()
                params.params.fence.value = each
                batch.append(params)
            code, = call(natives, batch, count, stream)
            if code != success:
                raise RuntimeError(code)
        return perf_counter() - began

    return way


def _reused(rig: Rig, shared: Sequence[Shared], what: What) -> Way:
    call, params_class = _parts(rig, what)
    natives, stream, count = [each.native for each in shared], rig.stream, len(shared)
    batch = [params_class() for _ in shared]
    fences = [params.params.fence for params in batch]   # views into the params

    def way(first: int, calls: int) -> float:
        began = perf_counter()
        for value in range(first, first + calls):
            values = [value] * count
            for fence, each in zip(fences, values, strict=True):
                fence.value = each
            code, = call(natives, batch, count, stream)
            if code != 0:   # faster than the comparison with CUresult.CUDA_SUCCESS
                raise RuntimeError(code)
        return perf_counter() - began

    return way


def _xsem(rig: Rig, shared: Sequence[Shared], what: What) -> Way:
    append: Any = rig.commands.append_signal if what == "signal" else rig.commands.append_wait
    semaphores, count = [each.here for each in shared], len(shared)

    def one(first: int, calls: int) -> float:
        semaphore = semaphores[0]
        began = perf_counter()
        for value in range(first, first + calls):
            append(semaphore, value)
        return perf_counter() - began

    def several(first: int, calls: int) -> float:
        began = perf_counter()
        for value in range(first, first + calls):
            append(semaphores, [value] * count)
        return perf_counter() - began

    return one if count == 1 else several
