cimport cython
from xsem.runtime.lifetime cimport Lifetime
from xsem.runtime.native cimport Lock

@cython.final
cdef class SemaphoreState:
    cdef object __weakref__
    cdef public object type, kind, label, token, origin, signallers, last, host_order
    cdef public Lock lock
    cdef public Lifetime lifetime
    cdef public bint imported, exported, rewound, signal_first, lent, _turning, _unreset, _signal_is_there
