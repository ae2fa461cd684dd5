cimport cython

@cython.final
cdef class PreparedCache:
    cdef public object _queue
    cdef public dict waits, signals, _batches
    cdef public Py_ssize_t _many
    cpdef find_batch(self, operation, semaphores)
    cpdef dict _entries(self, operation)
