"""Calls of C functions through their addresses: the form in Cython.

`native_call.py` is the same module in Python, with the docstrings.
"""

from cpython.bytearray cimport PyByteArray_AsString
from cpython.long cimport PyLong_AsUnsignedLongLong
from libc.stdint cimport uint64_t, uintptr_t

__all__ = ["NativeCall", "NativeFunction", "NativeQuery", "compiled"]

ctypedef int (*Function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t) noexcept nogil


cdef class NativeFunction:
    def __init__(self, address, failed):
        if not address:
            raise ValueError("an address is needed")
        self._address = address
        self._failed = failed

    cpdef call(self, uintptr_t first=0, uintptr_t second=0, uintptr_t third=0, uintptr_t fourth=0):
        cdef int code
        while True:
            with nogil:
                code = (<Function> self._address)(first, second, third, fourth)
            if code == 0:
                return None
            self._failed(code)


cdef class NativeQuery:
    def __init__(self, address, failed):
        if not address:
            raise ValueError("an address is needed")
        self._address = address
        self._failed = failed

    cpdef int query(self, uintptr_t pointer) except? -1:
        cdef int code, result = 0
        while True:
            with nogil:
                code = (<Function> self._address)(pointer, <uintptr_t> &result, 0, 0)
            if code == 0:
                return result
            self._failed(code)


cdef class NativeCall:
    def __init__(self, address, arguments, bytearray block, stride, *, failed, kept):
        if not address or len(arguments) > 4 or stride < 8 or len(block) % stride:
            raise ValueError("an address, at most four arguments and a block of whole strides are needed")
        cdef int number
        self._address = address
        for number, argument in enumerate(arguments):
            self._arguments[number] = argument
        self._view = memoryview(block)   # the view fixes the size and the address of the block
        self._slots = PyByteArray_AsString(block)
        self._count = len(block) // stride
        self._stride = stride
        self._failed = failed
        self._kept = kept

    cpdef call(self, values):
        cdef Py_ssize_t number = 0
        cdef int code
        if self._count == 1:
            (<uint64_t *> self._slots)[0] = 0 if values is None else PyLong_AsUnsignedLongLong(values)
        elif len(values) != self._count:
            raise ValueError(f"{self._count} values are needed, not {len(values)}")
        else:
            for value in values:
                (<uint64_t *> (self._slots + number * self._stride))[0] = PyLong_AsUnsignedLongLong(value)
                number += 1
        while True:
            with nogil:
                code = (<Function> self._address)(
                    self._arguments[0], self._arguments[1], self._arguments[2], self._arguments[3])
            if code == 0:
                return None
            self._failed(code)

    cpdef append(self, values, wait_fences=(), bint want_fence=False):
        raise NotImplementedError

    def __call__(self, values, wait_fences=(), bint want_fence=False):
        return self.append(values, wait_fences, want_fence)


def compiled():
    return True
