"""Calls of C functions through their addresses: the form in Cython.

`native_call.py` is the same module in Python, with the docstrings.
"""

from cpython.bytearray cimport PyByteArray_AsString
from cpython.long cimport PyLong_AsUnsignedLongLong
from libc.stdint cimport uint64_t, uintptr_t

__all__ = ["NativeCall", "NativeFunction", "NativeQuery", "compiled"]

ctypedef int (*Function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t) noexcept nogil


# `__new__` clears the fields, and `__init__` sets the address last, in one step with the other fields. An object with an
# address is therefore complete. A second `__init__` would change the fields while another thread calls the function.
cdef _incomplete(self):
    return RuntimeError(f"this {type(self).__name__} is not initialised: its class must call super().__init__ first")


cdef _complete(self):
    return RuntimeError(f"this {type(self).__name__} is initialised already: make a new one")


cdef class NativeFunction:
    def __init__(self, address, failed):
        if not address:
            raise ValueError("an address is needed")
        cdef uintptr_t function = address
        if self._address:
            raise _complete(self)
        self._failed = failed
        self._address = function

    cpdef call(self, uintptr_t first=0, uintptr_t second=0, uintptr_t third=0, uintptr_t fourth=0):
        cdef int code
        if not self._address:
            raise _incomplete(self)
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
        cdef uintptr_t function = address
        if self._address:
            raise _complete(self)
        self._failed = failed
        self._address = function

    cpdef int query(self, uintptr_t pointer) except? -1:
        cdef int code, result = 0
        if not self._address:
            raise _incomplete(self)
        while True:
            with nogil:
                code = (<Function> self._address)(pointer, <uintptr_t> &result, 0, 0)
            if code == 0:
                return result
            self._failed(code)


cdef class NativeCall:
    def __init__(self, address, arguments, bytearray block, stride, *, failed, kept):
        arguments = tuple(arguments)   # its length is true
        if not address or len(arguments) > 4 or stride < 8 or len(block) % stride:
            raise ValueError("an address, at most four arguments and a block of whole strides are needed")
        cdef uintptr_t function = address
        cdef uintptr_t[4] numbers = [0, 0, 0, 0]
        cdef Py_ssize_t number, distance = stride
        for number in range(len(arguments)):
            numbers[number] = arguments[number]
        view = memoryview(block)   # the view fixes the size and the address of the block
        if self._address:
            raise _complete(self)
        for number in range(4):
            self._arguments[number] = numbers[number]
        self._view = view
        self._slots = PyByteArray_AsString(block)
        self._count = len(block) // distance
        self._stride = distance
        self._failed = failed
        self._kept = kept
        self._address = function

    cpdef call(self, values):
        cdef Py_ssize_t number = 0
        cdef int code
        if not self._address:
            raise _incomplete(self)
        if self._count == 1:
            (<uint64_t *> self._slots)[0] = 0 if values is None else PyLong_AsUnsignedLongLong(values)
        else:
            for value in values:   # not by `len(values)`, which a class of the application can answer as it likes
                if number == self._count:
                    raise ValueError(f"{self._count} values are needed, and there are more")
                (<uint64_t *> (self._slots + number * self._stride))[0] = PyLong_AsUnsignedLongLong(value)
                number += 1
            if number < self._count:
                raise ValueError(f"{self._count} values are needed, not {number}")
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
