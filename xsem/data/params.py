"""Parameters of one signal or wait.

The constructors check the form of each field. The append checks the fields against the kind of the semaphore.
"""

from __future__ import annotations

import enum
import operator
from dataclasses import dataclass
from typing import Final, TypeVar

from xsem.errors import BadArgumentError

__all__ = ["INFINITE", "SignalParams", "WaitParams"]

INFINITE: Final = 0xFFFFFFFF
"""The Windows constant INFINITE, for `WaitParams.timeout_ms`. None has the same meaning."""

UINT64_MAX: Final = 2**64 - 1
_Member = TypeVar("_Member", bound=enum.Enum)


def check_int(what: str, value: object, low: int, high: int, *, reason: str) -> None:
    """Refuse a value that is not an int in ``low … high``. A bool is refused, too."""
    if type(value) is not int:
        raise BadArgumentError(f"{what} must be an int, not {type(value).__name__} {value!r}", reason="not_an_int")
    if not low <= value <= high:
        raise BadArgumentError(f"{what} must be in {low} … {high}, not {value}", reason=reason)


def parse_index(value: object) -> int:
    """Return an object of an integer type, for example of NumPy, as an int, or raise TypeError."""
    # Before NumPy 2.2, its bools have an index, with a warning.
    if isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", None) == "b":
        raise TypeError(f"{value!r} is a bool")
    return operator.index(value)   # type: ignore[arg-type]


def parse_member(what: str, value: object, kind: type[_Member], *, reason: str) -> _Member:
    """Return a member of an enumeration, which can be given by its name or by its value."""
    if isinstance(value, kind):
        return value
    # The exact type: a member of another enumeration of strings is a str, too, and can have an equal value.
    if type(value) is str:
        for member in kind:
            if value in (member.name, member.value):
                return member
    raise BadArgumentError(f"{what} is a {kind.__name__} or its name, one of {', '.join(kind.__members__)}; not "
                           f"{value!r}", reason=reason)


def check_bool(what: str, value: object) -> None:
    """Refuse a value that is not a bool. Otherwise, for example, the string "False" would set a driver's flag."""
    if type(value) is not bool:
        raise BadArgumentError(f"{what} must be a bool, not {type(value).__name__} {value!r}", reason="not_a_bool")


def _check_common(params: SignalParams | WaitParams) -> None:
    value, key, fence = params.value, params.key, params.nvscisync_fence
    if value is not None:
        check_int("value", value, 0, UINT64_MAX, reason="value_out_of_range")
    if key is not None:
        check_int("key", key, 0, UINT64_MAX, reason="key_out_of_range")
    if fence is not None:
        check_int("nvscisync_fence", fence, 1, UINT64_MAX, reason="null_fence")
    check_bool("skip_nvscibuf_memsync", params.skip_nvscibuf_memsync)


@dataclass(frozen=True, kw_only=True, slots=True)
class SignalParams:
    """Parameters of the signal of one semaphore (cuSignalExternalSemaphoresAsync; Level Zero rule 1).

    Attributes
    ----------
    value : int or None
        Timelines: the value to set, 0 … 2**64 - 1. Required for timelines, refused for every other kind.
    key : int or None
        Keyed mutexes: the key for the release, 0 … 2**64 - 1. Required for keyed mutexes, refused for every other kind.
    nvscisync_fence : int or None
        NvSciSync: address of the caller's NvSciSyncFence, required. The append writes the fence. The address must stay
        valid until the append returns.
    skip_nvscibuf_memsync : bool
        NvSciSync: CUDA_EXTERNAL_SEMAPHORE_SIGNAL_SKIP_NVSCIBUF_MEMSYNC. The signal skips the memory synchronisation of
        NvSciBuf memory.
    allow_rewind : bool
        Permit a timeline value that is not above the last value signalled here. The value of a D3D fence can decrease.

    Raises
    ------
    BadArgumentError
        ``value_out_of_range``, ``key_out_of_range``, ``null_fence``; ``not_an_int``, ``not_a_bool``.

    Examples
    --------
    >>> SignalParams(value=8).allow_rewind
    False
    """

    value: int | None = None
    key: int | None = None
    nvscisync_fence: int | None = None
    skip_nvscibuf_memsync: bool = False
    allow_rewind: bool = False

    def __post_init__(self) -> None:
        _check_common(self)
        check_bool("allow_rewind", self.allow_rewind)


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitParams:
    """Parameters of the wait for one semaphore (cuWaitExternalSemaphoresAsync; Level Zero rule 2).

    Attributes
    ----------
    value : int or None
        Timelines: later work waits until the value of the semaphore is at least this value, 0 … 2**64 - 1. Required for
        timelines, refused for every other kind.
    key : int or None
        Keyed mutexes: the key for the acquire, 0 … 2**64 - 1. Required for keyed mutexes, refused for every other kind.
    timeout_ms : int or None
        Only for keyed mutexes: milliseconds, 0 … 2**32 - 2. None and `INFINITE` mean no timeout. After the timeout, the
        work behind the wait runs without the mutex, and the list fails (``mutex_timeout``).
    nvscisync_fence : int or None
        NvSciSync: address of the NvSciSyncFence to wait for, required.
    skip_nvscibuf_memsync : bool
        NvSciSync: CUDA_EXTERNAL_SEMAPHORE_WAIT_SKIP_NVSCIBUF_MEMSYNC. The wait skips the memory synchronisation of
        NvSciBuf memory.

    Raises
    ------
    BadArgumentError
        ``value_out_of_range``, ``key_out_of_range``, ``timeout_out_of_range``, ``null_fence``; ``not_an_int``,
        ``not_a_bool``.

    Examples
    --------
    >>> WaitParams(value=7).timeout_ms is None
    True
    """

    value: int | None = None
    key: int | None = None
    timeout_ms: int | None = None
    nvscisync_fence: int | None = None
    skip_nvscibuf_memsync: bool = False

    def __post_init__(self) -> None:
        _check_common(self)
        if self.timeout_ms is not None:
            check_int("timeout_ms", self.timeout_ms, 0, INFINITE, reason="timeout_out_of_range")
