"""Calls of C functions through their addresses, with arguments that are laid out once. This is the form in Cython.

`native_call.py` is the same module in Python, with the descriptions.
"""

from cpython.bytearray cimport PyByteArray_AsString
from libc.stdint cimport uint64_t, uintptr_t

__all__ = ["NativeCall", "compiled"]

ctypedef int (*Function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t) noexcept nogil


cdef class NativeCall:
    def __init__(self, address, arguments, bytearray block, stride, *, failed, with_fences, kept):
        if not address or len(arguments) > 4 or stride < 8 or len(block) % stride:
            raise ValueError("an address, at most four arguments and a block of whole strides are needed")
        cdef int number
        self._address = address
        for number, argument in enumerate(arguments):
            self._arguments[number] = argument
        self._view = memoryview(block)   # while it exists, the block keeps its size and its place
        self._slots = PyByteArray_AsString(block)
        self._count = len(block) // stride
        self._stride = stride
        self._failed = failed
        self._with_fences = with_fences
        self._kept = kept

    def __call__(self, values, wait_fences=(), bint want_fence=False):
        return self.append(values, wait_fences, want_fence)

    cpdef append(self, values, wait_fences=(), bint want_fence=False):
        cdef Py_ssize_t number = 0
        cdef int code
        if want_fence or wait_fences:
            return self._with_fences(self, values, wait_fences, want_fence)
        if self._count == 1:
            (<uint64_t *> self._slots)[0] = 0 if values is None else values
        else:
            if len(values) != self._count:
                raise ValueError(f"{self._count} values are needed, not {len(values)}")
            for value in values:
                (<uint64_t *> (self._slots + number * self._stride))[0] = value
                number += 1
        while True:
            with nogil:
                code = (<Function> self._address)(
                    self._arguments[0], self._arguments[1], self._arguments[2], self._arguments[3])
            if code == 0:
                return None
            self._failed(code)


def compiled():
    return True
