from xsem.facade.resource cimport Resource
from xsem.runtime.semaphore_state cimport SemaphoreState

cdef class Semaphore(Resource):
    cdef public object type, kind, label
    cdef public SemaphoreState _state
