cimport cython
from libc.stdint cimport uintptr_t

@cython.no_gc   # it refers to no object that can refer to it
cdef class Fence:
    cdef public uintptr_t event
    cdef public object captured, keyed
    cdef public bint borrowed

@cython.locals(fence=Fence)
cpdef Fence new_fence(uintptr_t event, captured=*, keyed=*)

cdef class BorrowedFence(Fence):
    cdef public object source

cdef class Fences:
    cdef object _context, _quiet, _create, _query, _destroy, _flags, _free, _shared_lock
    cdef dict _shared
    cpdef take(self)
    cpdef create(self)
    cpdef give_back(self, event)
    @cython.locals(address=uintptr_t)
    cpdef release(self, Fence fence)
    cdef bint _used_by_others(self, Fence fence) except -1
