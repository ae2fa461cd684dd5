"""Calls of C functions through their addresses: the form in Python.

`native_call.pyx` is the same module in Cython. Cython calls an address directly, and Python needs ctypes.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

from xsem.spi.tokens import Token

__all__ = ["NativeCall", "NativeFunction", "NativeQuery", "compiled"]

# CFUNCTYPE is right on Windows, too: 64-bit code has one calling convention.
_FUNCTION: Final = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)


def _check_new(made: object) -> None:
    if hasattr(made, "_function"):
        raise RuntimeError(f"this {type(made).__name__} is initialised already: make a new one")


class NativeFunction:
    """A C function with up to four pointers or ints as parameters. Its result is an int, 0 for success.

    Parameters
    ----------
    address : int
    failed : callable
        Called with each result other than 0. The callable raises the error, or returns to repeat the call.
    """

    __slots__ = ("_failed", "_function")

    def __init__(self, address: int, failed: Callable[[int], object]) -> None:
        if not address:
            raise ValueError("an address is needed")
        _check_new(self)
        self._function = _FUNCTION(address)
        self._failed = failed

    def call(self, first: int = 0, second: int = 0, third: int = 0, fourth: int = 0) -> None:
        """Call the function. The function ignores surplus arguments.

        Parameters
        ----------
        first, second, third, fourth : int
            The arguments: addresses or numbers.
        """
        while code := self._function(first, second, third, fourth):
            self._failed(code)


class NativeQuery:
    """A C function that reads a pointer and writes an int. Its result is an int, 0 for success.

    Parameters
    ----------
    address : int
    failed : callable
        As for `NativeFunction`.
    """

    __slots__ = ("_at", "_failed", "_function", "_result")

    def __init__(self, address: int, failed: Callable[[int], object]) -> None:
        if not address:
            raise ValueError("an address is needed")
        _check_new(self)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address)
        self._failed = failed
        self._result = ctypes.c_int()
        self._at = ctypes.addressof(self._result)

    def query(self, pointer: int) -> int:
        """Call the function, and return the written int.

        Parameters
        ----------
        pointer : int
            The pointer that the function reads.

        Returns
        -------
        int
            The number that the function wrote.
        """
        while code := self._function(pointer, self._at):
            self._failed(code)
        return self._result.value


class NativeCall:
    """A call of a C function with fixed arguments. The function reads the values of each call from a block of memory.

    A `PreparedCall` of a backend inherits this class and implements `append`.

    Parameters
    ----------
    address : int
        Address of a function as for `NativeFunction`.
    arguments : sequence of int
        Values of the arguments.
    block : bytearray
        Each call writes value n as a 64-bit number of this machine to the bytes from ``n * stride`` on, and one None as
        0. The size of the block is the number of values times `stride`.
    stride : int
        Distance between two values in bytes, at least 8.
    failed : callable
        As for `NativeFunction`.
    kept : object
        Owner of the memory to which the arguments point.
    """

    __slots__ = ("_arguments", "_block", "_failed", "_first", "_function", "_kept", "_several")

    def __init__(
        self, address: int, arguments: Sequence[int], block: bytearray, stride: int, *,
        failed: Callable[[int], object], kept: object,
    ) -> None:
        if not address or len(arguments) > 4 or stride < 8 or len(block) % stride:
            raise ValueError("an address, at most four arguments and a block of whole strides are needed")
        _check_new(self)
        self._arguments = tuple(map(ctypes.c_void_p, arguments))
        self._block = block
        self._first = memoryview(block)[:8].cast("Q")
        count = len(block) // stride
        self._several = None if count == 1 else struct.Struct("=" + f"Q{stride - 8}x" * count).pack_into
        self._failed = failed
        self._kept = kept
        # Without argtypes: ctypes would check them at each call, and the arguments never change.
        self._function = ctypes.CFUNCTYPE(ctypes.c_int)(address)

    def call(self, values: Any) -> None:
        """Write the values, and call the function.

        Parameters
        ----------
        values : int, None, or a sequence of int
            One value, or a sequence of values for a block with several values.
        """
        if self._several is None:
            self._first[0] = values or 0
        else:
            self._several(self._block, 0, *values)
        while code := self._function(*self._arguments):
            self._failed(code)

    def append(self, values: Any, wait_fences: Sequence[Token] = (), want_fence: bool = False) -> Token | None:
        """Append the operation with these values. `PreparedCall` describes the parameters.

        The subclass of a backend implements this method with `call`.

        Parameters
        ----------
        values, wait_fences, want_fence
            As for `PreparedCall`.

        Returns
        -------
        Token or None
            A fence if `want_fence` is True.

        Raises
        ------
        NotImplementedError
            The class does not implement the method.
        """
        raise NotImplementedError

    def __call__(self, values: Any, wait_fences: Sequence[Token] = (), want_fence: bool = False) -> Token | None:
        """Call `append`.

        Parameters
        ----------
        values, wait_fences, want_fence
            As for `PreparedCall`.

        Returns
        -------
        Token or None
            As for `append`.
        """
        return self.append(values, wait_fences, want_fence)


def compiled() -> bool:
    """Return whether the append path is compiled.

    Returns
    -------
    bool
        False: the append path is pure Python.
    """
    return False
