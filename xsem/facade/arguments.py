"""Checks of the arguments of appends. The checks precede the driver's call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from xsem.data.params import parse_index
from xsem.errors import BadArgumentError, WrongDeviceError
from xsem.facade.memory import Memory
from xsem.facade.resource import Resource
from xsem.facade.semaphore import Semaphore
from xsem.runtime.device_state import DeviceState
from xsem.runtime.lifetime import Lifetime
from xsem.runtime.queues.prepared_append import PreparedAppend, are_values
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.spi import Token
from xsem.types import INFINITE, SemaphoreKind, SignalParams, WaitParams

__all__ = ["batch", "check_can_signal", "check_memories", "check_same_device", "checked_params", "shortest_period"]


def checked_params(append: PreparedAppend, params: Any) -> int | tuple[int, ...] | list[WaitParams | SignalParams]:
    """Check the parameters of an append, and return them in the form of `Operation.params`."""
    states = append.states
    given: tuple[Any, ...] = (params,)
    if append.batch:
        # The exact types come first: `isinstance` with `Sequence` takes longer than all other checks here.
        if type(params) is not list and type(params) is not tuple and (
                isinstance(params, str | bytes) or not isinstance(params, Sequence)):
            raise BadArgumentError(f"append_{append.operation} of a sequence takes a sequence of as many parameters: "
                                   "nothing is broadcast", reason="params_mismatch")
        given = tuple(params)
        if len(given) != len(states):
            raise BadArgumentError(f"append_{append.operation}: {len(states)} semaphores and {len(given)} parameters",
                                   reason="params_mismatch")
    if append.timelines and are_values(given):
        return given if len(given) > 1 else given[0]
    checked = [_param(state, param, append.params_type) for state, param in zip(states, given, strict=True)]
    for state, param in zip(states, checked, strict=True):
        _check_fields(state, param)
        if isinstance(param, WaitParams):
            _check_timeout(state, param)
    rewinding = [param for param in checked if isinstance(param, SignalParams) and param.allow_rewind]
    if append.timelines and not rewinding:
        # The parameters contain only values: `_check_fields` has refused None.
        values = tuple([cast("int", param.value) for param in checked])
        return values if len(values) > 1 else values[0]
    return checked


def batch(
    device_state: DeviceState, semaphores: Semaphore | Sequence[Semaphore], call: str
) -> Sequence[Semaphore]:
    """Check the semaphores of an append, and return them as a sequence."""
    if isinstance(semaphores, Semaphore):
        chosen: Sequence[Semaphore] = (semaphores,)
    else:
        _check_sequence(semaphores, call)
        chosen = tuple(semaphores)
        if not chosen:
            raise BadArgumentError(f"{call} takes at least one semaphore", reason="empty_batch")
        if len({id(semaphore) for semaphore in chosen}) != len(chosen):
            raise BadArgumentError(f"{call}: a semaphore is in the batch twice", reason="duplicate_semaphore")
    for semaphore in chosen:
        if not isinstance(semaphore, Semaphore):
            raise BadArgumentError(f"{call} takes Semaphores, not {type(semaphore).__name__}", reason="not_a_semaphore")
        check_same_device(device_state, semaphore, "semaphore")
    return chosen


def _check_sequence(semaphores: object, call: str) -> None:
    if isinstance(semaphores, str | bytes) or not isinstance(semaphores, Sequence):
        raise BadArgumentError(f"{call} takes a Semaphore or a sequence of them, not {type(semaphores).__name__}",
                               reason="not_a_semaphore")


def check_can_signal(state: SemaphoreState) -> None:
    """Refuse to signal an imported sync file, or a timeline that was imported only for reading."""
    state.check_can_signal()
    # The file stands for the signal of its exporter, so no device can signal it.
    if state.kind is SemaphoreKind.SYNC_FILE and state.imported:
        raise BadArgumentError("a sync file that was imported can only be waited for", reason="signal_of_sync_file",
                               handle_type=state.type)


_NEEDS: Final = {
    "value": "a value: it is a timeline. Pass the value after the semaphore, for example 1, or ",
    "key": "a key: it is a keyed mutex. Pass ",
    "nvscisync_fence": "a fence: it is an NvSciSync object. Pass ",
}


def _param(state: SemaphoreState, param: Any, kind: type[WaitParams | SignalParams]) -> WaitParams | SignalParams:
    if isinstance(param, kind):
        return param
    if param is None:
        return kind()
    if isinstance(param, WaitParams | SignalParams):
        raise BadArgumentError(f"{kind.__name__} is needed, not {type(param).__name__}", reason="wrong_params")
    if state.kind is not SemaphoreKind.TIMELINE:
        takes = {SemaphoreKind.KEYED_MUTEX: f"{kind.__name__}(key=…)",
                 SemaphoreKind.NVSCISYNC: f"{kind.__name__}(nvscisync_fence=…)"}
        raise BadArgumentError(
            f"{state.described} takes {takes.get(state.kind, 'no value')}, not {param!r}",
            reason="value_not_allowed", handle_type=state.type,
        )
    try:
        return kind(value=parse_index(param))
    except TypeError:
        raise BadArgumentError(f"value must be an int, not {type(param).__name__}", reason="not_an_int",
                               handle_type=state.type) from None


def _check_fields(state: SemaphoreState, param: SignalParams | WaitParams) -> None:
    """Check the required and the refused fields of each kind."""
    # The rules are those of cuSignalExternalSemaphoresAsync and cuWaitExternalSemaphoresAsync.
    if (
        state.kind is SemaphoreKind.TIMELINE and param.value is not None and param.key is None
        and param.nvscisync_fence is None and not param.skip_nvscibuf_memsync
    ):
        return  # the usual case: without this check, the checks below take longer than the driver's call
    for field, kind, required, refused in (
        ("value", SemaphoreKind.TIMELINE, "value_required", "value_not_allowed"),
        ("key", SemaphoreKind.KEYED_MUTEX, "key_required", "key_not_allowed"),
        ("nvscisync_fence", SemaphoreKind.NVSCISYNC, "fence_required", "fence_not_allowed"),
    ):
        given = getattr(param, field) is not None
        if state.kind is kind and not given:
            raise BadArgumentError(f"{state.described} needs {_NEEDS[field]}{type(param).__name__}({field}=…)",
                                   reason=required, handle_type=state.type)
        if state.kind is not kind and given:
            raise BadArgumentError(f"{state.described} takes no {field}", reason=refused,
                                   handle_type=state.type)
    if param.skip_nvscibuf_memsync and state.kind is not SemaphoreKind.NVSCISYNC:
        raise BadArgumentError(f"{state.described}: skip_nvscibuf_memsync is only for NvSciSync",
                               reason="flag_not_allowed", handle_type=state.type)


def _check_timeout(state: SemaphoreState, param: WaitParams) -> None:
    if param.timeout_ms not in (None, INFINITE) and state.kind is not SemaphoreKind.KEYED_MUTEX:
        raise BadArgumentError(f"{state.described}: timeout_ms is only for keyed mutexes; limit the host's wait",
                               reason="timeout_not_allowed", handle_type=state.type)


def check_same_device(device_state: DeviceState, used: Resource, what: str) -> None:
    """Refuse an object of another device and a released object."""
    if used._device_state is not device_state:
        here, there = device_state.info.id, used._device_state.info.id
        raise WrongDeviceError(
            f"the {what} belongs to another open device than this list: to {there}, and the list to {here}"
            f"{' (opened twice)' if here == there else ''}. An export and an import bring semaphores and memory there",
            expected=device_state.info.id, actual=used._device_state.info.id, reason="wrong_device",
            backend=device_state.info.backend,
        )
    used._lifetime.check()


def check_memories(
    device_state: DeviceState, memories: Sequence[Memory]
) -> tuple[Sequence[Lifetime], Sequence[Token]]:
    """Check the memory of ``acquire=`` or ``release=``, and return its lifetimes and its tokens for the driver."""
    # The exact types come first, as in `checked_params`.
    if type(memories) is not list and type(memories) is not tuple and not isinstance(memories, Sequence):
        raise BadArgumentError("acquire= and release= take a sequence of xsem Memory objects, for example [memory], "
                               f"not {type(memories).__name__}", reason="not_a_memory")
    lifetimes: list[Lifetime] = []
    tokens: list[Token] = []
    for memory in memories:
        if not isinstance(memory, Memory):
            raise BadArgumentError(f"acquire= and release= take xsem Memory objects, not {type(memory).__name__}",
                                   reason="not_a_memory")
        check_same_device(device_state, memory, "memory")
        checked = memory
        lifetimes.append(checked._lifetime)
        if device_state.needs_handover:   # otherwise the driver gets no tokens
            tokens.append(memory._memory)
    if len(lifetimes) > 1 and len(set(lifetimes)) != len(lifetimes):
        raise BadArgumentError("acquire= or release= names the same memory twice: name it once, because it changes "
                               "hands once in an operation", reason="duplicate_memory")
    return lifetimes, tokens


def shortest_period(pattern: bytes) -> bytes:
    """Return the shortest pattern whose repetition gives the same bytes."""
    return pattern[:(pattern + pattern).find(pattern, 1)]
