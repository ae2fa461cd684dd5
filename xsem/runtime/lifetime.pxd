cdef class Lifetime:
    cdef object __weakref__
    cdef public object _free, _gate, _hold, _holders, _pinned, _visitors, parent, what
    cdef public Releaser _releaser
    cdef public dict uses
    cdef public Py_ssize_t _many_uses
    cdef public bint freed, may_block, over, released
    cpdef check(self)
    cpdef use(self, object user, object seq)

cdef class Releaser:
    cdef object __weakref__
    cdef dict __dict__
    cdef public object _name, lock, releases, lifetimes, ending, _generation, inbox, later, _pending, unsettled, _nap, _ready, _thread
    cdef public object _rounds, _looked
    cdef public bint closing, jobs, _lingering, _held_back, crowded, _warned
