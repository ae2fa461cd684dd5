"""What a method returns if it does nothing."""

from __future__ import annotations

import os
from typing import Any

from composer.forwarding import Call
from composer.interface import Method
from xsem import spi
from xsem.types import OwnedHandle

__all__ = ["can_do_nothing", "nothing"]

_EMPTY: dict[str, Any] = {
    "None": lambda: None, "bool": lambda: True, "int": lambda: 0, "Token": object,
    "Imported": lambda: spi.Imported(object(), handle="left"),
    "tuple[Token, int]": lambda: (object(), 1 << 20), "tuple[Token, int | None]": lambda: (object(), None),
    "tuple[Token, int, int]": lambda: (object(), 1 << 20, 0),
    "OwnedHandle": lambda: OwnedHandle(os.open(os.devnull, os.O_RDWR)), "OwnedHandle | None": lambda: None,
    "Sequence[DeviceInfo]": tuple, "Sequence[HealthCheck]": tuple, "Sequence[MemoryChunk]": tuple,
    "Sequence[Path | str]": tuple, "Mapping[str, str]": dict,
    "tuple[int, int]": lambda: (0, 0),
    "float | None": lambda: None, "Hashable | None": lambda: None,
    "PreparedCall | None": lambda: None, "tuple[int, int] | None": lambda: None,
}
_DRIVERS = ("QueueDriver", "DeviceDriver", "tuple[DeviceInfo, DeviceDriver]")


def can_do_nothing(method: Method) -> bool:
    """Return whether the method has a result without the call of a driver."""
    if not method.appends and method.returns not in _EMPTY and method.returns not in _DRIVERS:
        raise ValueError(f"{method.key} returns {method.returns}: results.py needs its empty value")
    return method.appends or method.returns in _EMPTY


def nothing(call: Call) -> Any:
    """Return what the method returns if it does nothing. An append returns a fence that works."""
    if call.method.appends:
        queue = call.owner.inner
        return queue.append_barrier((), call.args["want_fence"])
    return _EMPTY[call.method.returns]()
