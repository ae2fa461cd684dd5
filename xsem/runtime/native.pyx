"""The lock and the clock of the append path: the form in Cython. `native.py` is the same module in Python."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport (
    NOWAIT_LOCK, PY_LOCK_ACQUIRED, PY_LOCK_INTR, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_get_thread_ident, PyThread_release_lock, PyThread_type_lock,
)

import time

__all__ = ["Lock", "now"]

cdef extern from "pythread.h":
    int PyThread_acquire_lock_timed(PyThread_type_lock, long long microseconds, int interruptible) nogil

cdef extern from *:
    """
    #include <time.h>
    static double xsem_now(void) {   /* time.monotonic() */
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        return (double) at.tv_sec + 1e-9 * (double) at.tv_nsec;
    }
    """
    double xsem_now() nogil


cpdef double now():
    return xsem_now()


@cython.final
cdef class Lock:
    """A re-entrant lock with the methods of `threading.RLock`."""

    # The GIL protects the fields, so a thread acquires a free lock by setting them. The first waiting thread locks the
    # system's lock on behalf of the owner, and the owner unlocks it at the release.

    def __cinit__(self):
        self._lock = PyThread_allocate_lock()
        if not self._lock:
            raise MemoryError

    def __dealloc__(self):
        if self._lock:
            if self._locked:
                PyThread_release_lock(self._lock)
            PyThread_free_lock(self._lock)

    cpdef bint acquire(self, bint blocking=True, double timeout=-1) except -1:
        cdef unsigned long thread = PyThread_get_thread_ident()
        if self._count:
            if self._owner == thread:
                self._count += 1
                return True
        elif not self._waiting:
            self._owner = thread
            self._count = 1
            return True
        return self._wait(thread, timeout) if blocking else False

    cdef bint _wait(self, unsigned long thread, double timeout) except -1:
        cdef int status
        cdef long long left_us = -1
        end = time.monotonic() + timeout if timeout >= 0 else 0
        # No other thread runs between this check and the change of `_waiting`.
        if self._count and not self._locked:
            # The system's lock is free: an earlier waiting thread would have set `_locked`.
            PyThread_acquire_lock(self._lock, NOWAIT_LOCK)
            self._locked = True
        self._waiting += 1
        try:
            while True:
                if timeout >= 0:
                    left_us = max(0, int((end - time.monotonic()) * 1e6))
                with nogil:
                    status = PyThread_acquire_lock_timed(self._lock, left_us, 1)
                if status == PY_LOCK_ACQUIRED:
                    break
                if status != PY_LOCK_INTR:
                    return False
                PyErr_CheckSignals()   # may raise KeyboardInterrupt
        finally:
            self._waiting -= 1
        self._locked = True
        self._owner = thread
        self._count = 1
        return True

    cpdef release(self):
        if not self._count or self._owner != PyThread_get_thread_ident():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = 0
            if self._locked:
                self._locked = False
                PyThread_release_lock(self._lock)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, kind, error, traceback):
        self.release()

    def _is_owned(self):
        return self._count > 0 and self._owner == PyThread_get_thread_ident()
