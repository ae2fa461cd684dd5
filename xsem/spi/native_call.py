"""Calls of C functions through their addresses, with arguments that are laid out once. This is the form in Python.

`native_call.pyx` is the same module in Cython: Python has no direct call through an address.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from xsem.spi.tokens import Token

__all__ = ["NativeCall", "compiled"]


class NativeCall:
    """A `PreparedCall` that writes its values into a block of memory, and calls a C function with fixed arguments.

    Parameters
    ----------
    address : int
        Address of a function that takes up to four pointers or ints and returns an int, 0 for success.
    arguments : sequence of int
        Values of the arguments.
    block : bytearray
        Value n of a call is written as a 64-bit number of this machine to the bytes from ``n * stride`` on. None is
        written as 0. The size of the block is the number of values times `stride`.
    stride : int
    failed : callable
        Called with a result other than 0. It raises the error, or returns for another call of the function.
    with_fences : callable
        ``with_fences(call, values, wait_fences, want_fence)`` makes a call that waits for fences or returns a fence. It
        calls ``call(values, (), False)`` meanwhile, and returns the fence, if any.
    kept : object
        Owner of the memory to which the arguments point.
    """

    __slots__ = ("_arguments", "_block", "_failed", "_first", "_function", "_kept", "_several", "_with_fences")

    def __init__(
        self, address: int, arguments: Sequence[int], block: bytearray, stride: int, *,
        failed: Callable[[int], object], with_fences: Callable[..., Token | None], kept: object,
    ) -> None:
        if not address or len(arguments) > 4 or stride < 8 or len(block) % stride:
            raise ValueError("an address, at most four arguments and a block of whole strides are needed")
        # No argtypes: ctypes would check them at each call, and the arguments are always the same. Not stdcall on
        # Windows: 64-bit code has one calling convention.
        self._function = ctypes.CFUNCTYPE(ctypes.c_int)(address)
        self._arguments = tuple(map(ctypes.c_void_p, arguments))
        self._block = block
        self._first = memoryview(block)[:8].cast("Q")
        count = len(block) // stride
        self._several = None if count == 1 else struct.Struct("=" + f"Q{stride - 8}x" * count).pack_into
        self._failed = failed
        self._with_fences = with_fences
        self._kept = kept

    def append(self, values: Any, wait_fences: Sequence[Token] = (), want_fence: bool = False) -> Token | None:
        """Write the values, and call the function.

        Parameters
        ----------
        values : int, None, or a sequence of int
            One value, or a sequence of values if the block has several.
        wait_fences, want_fence
            As for `QueueDriver`.
        """
        if wait_fences or want_fence:
            return self._with_fences(self, values, wait_fences, want_fence)
        if self._several is None:
            self._first[0] = values or 0
        else:
            self._several(self._block, 0, *values)
        while code := self._function(*self._arguments):
            self._failed(code)
        return None

    def __call__(self, values: Any, wait_fences: Sequence[Token] = (), want_fence: bool = False) -> Token | None:
        """Call `append`."""
        return self.append(values, wait_fences, want_fence)


def compiled() -> bool:
    """Return whether the append path is compiled. Otherwise, it is pure Python."""
    return False
