cdef class SemaphoreState:
    cdef object __weakref__
    cdef public object type, kind, label, token, lifetime, origin, lock, last, _turning, host_order
    cdef public bint imported, exported, _unreset, rewound, _signal_is_there
