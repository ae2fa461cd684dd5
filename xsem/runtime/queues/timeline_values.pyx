"""The values of several timelines in one append: the form in Cython. `timeline_values.py` has the docstrings."""

from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_CheckExact

from xsem.runtime.semaphore_state cimport SemaphoreState

__all__ = ["all_above", "are_values", "last_values", "store_values"]

cdef extern from *:
    """
    /* Return whether an int is from 0 to 2**64 - 1. */
    static int xsem_is_value(PyObject *number) {
        if (PyLong_AsUnsignedLongLong(number) == (unsigned long long) -1 && PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        return 1;
    }
    """
    bint xsem_is_value(object number)


cpdef bint are_values(tuple given):
    for each in given:
        if not PyLong_CheckExact(each) or not xsem_is_value(each):
            return False
    return len(given) > 0


cpdef list last_values(tuple states):
    return [(<SemaphoreState?> state).last for state in states]


cpdef bint all_above(values, list lasts) except -1:
    cdef tuple given = tuple(values)
    cdef Py_ssize_t number
    if len(given) != len(lasts):
        raise ValueError("one value for each timeline is needed")
    for number in range(len(given)):
        last = lasts[number]
        if last is None or PyLong_AsUnsignedLongLong(given[number]) <= PyLong_AsUnsignedLongLong(last):
            return False
    return True


cpdef store_values(tuple states, values):
    cdef tuple given = tuple(values)
    cdef Py_ssize_t number
    if len(given) != len(states):
        raise ValueError("one value for each timeline is needed")
    for number in range(len(given)):
        (<SemaphoreState?> states[number]).last = given[number]
