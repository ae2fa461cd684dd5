from xsem.runtime.queues.prepared_append cimport PreparedAppend

cdef class Prepared:
    cdef object __weakref__
    cdef public object _semaphores, _repeat
    cdef public PreparedAppend _append
