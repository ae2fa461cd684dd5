cdef class PreparedCache:
    cdef public object _queue, _many
    cdef public dict waits, signals, _batches
    cpdef find_batch(self, operation, object semaphores)
