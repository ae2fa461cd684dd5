cimport cython
from xsem.runtime.native cimport Lock

cdef class Usable:
    cpdef bint is_released(self)
    cpdef check(self)

@cython.final
cdef class Lifetime(Usable):
    cdef object __weakref__
    cdef public object what, _free, _gate, _hold, _reference
    cdef public set holders, visitors
    cdef public dict uses
    cdef public Lifetime parent
    cdef public Releaser _releaser
    cdef public Py_ssize_t _many_uses
    cdef public bint freed, may_block, over, released, _pinned
    cpdef use(self, user, long long seq)
    cpdef bint visit(self, by)

cdef class Lease:
    cdef object __weakref__
    cdef public object _by   # public: the finalizer asks whether it is there
    cdef public Lifetime _lifetime

cdef class Releaser:
    cdef object __weakref__
    cdef dict __dict__   # tests replace methods of one releaser
    cdef public Lock lock
    cdef public object lifetimes, forget, inbox, ending
    cdef public object _name, _generation, _pending, _nap, _ready, _thread, _rounds, _looked
    cdef public long long releases
    cdef public bint closing, jobs, crowded, _lingering, _held_back, _warned
