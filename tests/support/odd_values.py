"""Values of types that a call does not take, and what comes of a call with each of them."""

from __future__ import annotations

import asyncio
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xsem.errors import XsemError

__all__ = ["NUMBERS", "WAITS", "parameters", "raised"]


class _BeyondInt:
    def fileno(self) -> int:
        return 2**40


class _Failing:
    def fileno(self) -> int:
        raise RuntimeError("no number")


_ODD: dict[str, Callable[[], Any]] = {
    "None": lambda: None, "True": lambda: True, "5": lambda: 5, "-1": lambda: -1, "2**40": lambda: 2**40,
    "2**100": lambda: 2**100, "1.5": lambda: 1.5, "nan": lambda: float("nan"), "1j": lambda: 1j,
    "str": lambda: "text", "surrogate": lambda: "\ud800", "NUL": lambda: "a\0b", "bytes": lambda: b"bytes",
    "list": lambda: [1], "tuple": lambda: (), "dict": dict, "full dict": lambda: {1: 2}, "set": lambda: {1},
    "generator": lambda: (each for each in (1,)), "slice": lambda: slice(1), "object": object, "class": lambda: dict,
    "function": lambda: lambda *_: 0, "error": lambda: ValueError("x"), "array": lambda: np.arange(3),
    "empty array": lambda: np.empty(0), "0-d array": lambda: np.array(1), "fileno() of 2**40": _BeyondInt,
    "failing fileno()": _Failing,
}
NUMBERS = frozenset({"True", "5", "list", "array", "0-d array", "full dict", "set", "generator"})
"""The values that a call could take for the number of an open file, or for an address."""
WAITS = frozenset({"None", "5", "2**40", "2**100", "1.5", "0-d array"})
"""The values that are valid limits of a wait."""


def parameters(call: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters, without ``*args`` and ``**kwargs``; none if C code does not tell them."""
    try:
        inspect.signature(call)
    except ValueError:
        return []
    return [each.name for each in inspect.signature(call).parameters.values()
            if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD) and each.name != "self"]


def raised(call: Callable[..., Any], usual: Mapping[str, Any], parameter: str, but: frozenset[str] = frozenset(),
           permitted: tuple[type[Exception], ...] = ()) -> list[str]:
    """Call with each value in place of an argument. Return the errors that are not xsem's."""
    found = []
    for name in _ODD.keys() - but:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _end(call(**{**usual, parameter: _ODD[name]()}))
        except Exception as error:
            if not isinstance(error, (XsemError, *permitted)):
                found.append(f"{parameter}={name}: {type(error).__name__}: {error}")
    return found


def _end(result: Any) -> None:
    if inspect.isawaitable(result):
        async def waited() -> Any:
            async with asyncio.timeout(0.02):
                return await result
        try:
            result = asyncio.run(waited())
        except TimeoutError as error:
            if isinstance(error, XsemError):
                raise
            return
    for end in ("release", "close"):
        if callable(getattr(result, end, None)) and not isinstance(result, memoryview):
            getattr(result, end)()
            return
