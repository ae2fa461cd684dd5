# cython: language_level=3, auto_pickle=False
"""The optional compiled part of an append: the lock and the counters of a queue, and quick appends.

A quick append takes the steps of `Queue.append` for a wait, a signal or a barrier with nothing to check but events and
the values of timelines. If any other step is needed, it does nothing and says so, and `Queue.append` takes them all.
It makes all objects first. From its checks to the driver's call, it makes none, so the garbage collector calls no
finalizer there, and the GIL makes these steps one.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AsString
from cpython.exc cimport PyErr_CheckSignals
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_CheckExact
from cpython.pythread cimport (
    NOWAIT_LOCK, PY_LOCK_ACQUIRED, PY_LOCK_INTR, PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock,
    PyThread_get_thread_ident, PyThread_release_lock, PyThread_type_lock,
)
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

import os
import time

__all__ = ["AppendState", "EventFence", "Lock", "QuickAppend", "QuickQueue", "quick_append", "quick_barrier", "retire"]

cdef extern from "pythread.h":
    int PyThread_acquire_lock_timed(PyThread_type_lock, long long microseconds, int interruptible) nogil

cdef extern from *:
    """
    #include <time.h>
    static double xsem_now(void) {   /* time.perf_counter() */
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        return (double) at.tv_sec + 1e-9 * (double) at.tv_nsec;
    }
    static int xsem_is_value(PyObject *number, unsigned long long limit) {   /* an int from 0 to `limit` */
        const unsigned long long value = PyLong_AsUnsignedLongLong(number);
        if (value == (unsigned long long) -1 && PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
        return value <= limit;
    }
    """
    double xsem_now() nogil
    bint xsem_is_value(object number, uint64_t limit)

ctypedef int (*Function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t) noexcept nogil

cdef long long _forks = 0


def _in_child():
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


cdef class Lock:
    """A re-entrant lock with the methods of `threading.RLock`."""

    # The GIL protects the fields, so a thread acquires a free lock by setting them. The first waiting thread locks the
    # system's lock on behalf of the owner, and the owner unlocks it at the release.

    cdef PyThread_type_lock _system
    cdef unsigned long _owner
    cdef Py_ssize_t _count, _waiting
    cdef bint _locked

    def __cinit__(self):
        self._system = PyThread_allocate_lock()
        if not self._system:
            raise MemoryError

    def __dealloc__(self):
        if self._system:
            if self._locked:
                PyThread_release_lock(self._system)
            PyThread_free_lock(self._system)

    cpdef bint acquire(self, bint blocking=True, double timeout=-1) except -1:
        cdef unsigned long thread = PyThread_get_thread_ident()
        if self._count and self._owner == thread:
            self._count += 1
            return True
        if not self._count and not self._waiting:
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
            PyThread_acquire_lock(self._system, NOWAIT_LOCK)
            self._locked = True
        self._waiting += 1
        try:
            while True:
                if timeout >= 0:
                    left_us = max(0, int((end - time.monotonic()) * 1e6))
                with nogil:
                    status = PyThread_acquire_lock_timed(self._system, left_us, 1)
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
        if not self._is_owned():
            raise RuntimeError("cannot release un-acquired lock")
        self._count -= 1
        if not self._count:
            self._owner = 0
            if self._locked:
                self._locked = False
                PyThread_release_lock(self._system)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, kind, error, traceback):
        self.release()

    cpdef bint _is_owned(self):
        return self._count > 0 and self._owner == PyThread_get_thread_ident()

    def _recursion_count(self):
        return self._count if self._is_owned() else 0


@cython.final
cdef class AppendState:
    """What each append of a queue reads and changes, as `_AppendState` of `quick.py` describes."""

    cdef public long long seq, issued, last_wait, given, due
    cdef public bint exposed, issuing
    cdef public object recording, failure


cdef class EventFence:
    """A fence that is an event of the driver. It gives the event back for reuse; its subclass is in `operations.py`."""

    cdef public object device_state, queue
    cdef public long long seq
    cdef public bint captured
    cdef object _event, _token
    cdef QuickQueue _home

    @property
    def token(self):
        if self._token is None and self._home is not None:
            self._token = self._home._token_of(self._event)
        return self._token

    def __del__(self):
        if self._event is not None:
            self._home._give_back(self._event)


# These classes have `__cinit__`, so no object of them is unfinished.

cdef class NativeFunction:
    """A C function, and what to call with each result other than 0: it raises, or returns to repeat the call."""

    cdef uintptr_t _address
    cdef object _failed

    def __cinit__(self, function):
        self._address, self._failed = function

    cdef bint call(self, uintptr_t first, uintptr_t second, uintptr_t third, uintptr_t fourth) except -1:
        """Return True, or False if the call must be repeated."""
        cdef int code
        with nogil:
            code = (<Function> self._address)(first, second, third, fourth)
        if code:
            self._failed(code)
        return code == 0


@cython.final
cdef class QuickQueue:
    """The quick appends of one `Queue`, with the `QueueCalls` of its driver."""

    cdef readonly object fence_class
    cdef AppendState _state
    cdef Lock _lock, _values_lock, _releaser_lock
    cdef object _queue, _device_state, _releaser, _callbacks, _gate, _lifetime, _room, _barrier
    cdef object _note, _note_marker, _take_event, _give_back, _token_of
    cdef dict _uses
    cdef list _carried
    cdef NativeFunction _is_captured, _wait_event, _record_event
    cdef uintptr_t _native
    cdef bint _borrowed
    cdef long long _born

    def __cinit__(self, queue, calls, fence_class):
        device_state = queue.device_state
        self._queue, self._device_state, self._barrier, self.fence_class = queue, device_state, queue.barrier, fence_class
        self._state, self._lock, self._values_lock = queue.state, queue.lock, device_state.values_lock
        self._releaser_lock = device_state.releaser.lock
        self._callbacks = device_state.callbacks_thread
        self._releaser, self._gate, self._room = device_state.releaser, device_state.gate, queue.room
        self._lifetime, self._uses = queue.lifetime, queue.lifetime.uses
        self._note, self._note_marker = queue.progress.operations.append, queue.progress.note_marker
        self._native, self._borrowed = calls.queue, queue.borrowed
        self._is_captured, self._wait_event, self._record_event = (
            NativeFunction(calls.is_captured), NativeFunction(calls.wait_event), NativeFunction(calls.record_event))
        self._take_event, self._give_back, self._token_of = calls.events.popleft, calls.events.append, calls.token
        self._carried = calls.carried
        self._born = _forks

    def renote(self):
        """Take the operations of the queue anew, because a trace has begun or ended."""
        self._note = self._queue.progress.operations.append

    cdef bint run(self, QuickAppend append, params, user, wait_events, signal_event, given_lifetimes) except -1:
        """Append, or return False and have done nothing. Without `append`, the operation is a barrier."""
        cdef tuple lifetimes = tuple(given_lifetimes)
        cdef AppendState state = self._state
        cdef bint exposed = state.exposed, waits = append is not None and append._waits
        cdef long long seq, given
        cdef list kept = None, before = None
        cdef tuple marker = None
        cdef EventFence fence = None
        if self._born != _forks or (exposed and not self._is_free_of_captures()):
            return False
        # The objects.
        if append is not None:
            if type(params) is list:
                params = tuple(params)   # first: a finalizer can change the list
            if not append.takes(params):
                return False
            if append._signals:
                before = [None] * append._count
        if wait_events is not _NONE:
            kept = self._fences_of(wait_events)
            if kept is None:
                return False
            waits = waits or len(kept) > 0
        if signal_event is not None:
            fence = self.fence_class.__new__(self.fence_class)
            fence.device_state, fence.queue, fence._home = self._device_state, self._queue, self
            try:
                fence._event = self._take_event()
            except IndexError:
                return False
        seq = state.seq + 1
        given = state.given + 1
        number = seq
        if fence is not None:
            marker = (fence, given)
        operation = (number, self._barrier if append is None else append._append, params,
                     () if kept is None else kept, xsem_now())
        # Each reason for another step of `Queue.append`. The event is first, because it can be an object of any class.
        if ((signal_event is not None and (self._carried or not self._is_free(signal_event)))
                or state.seq + 1 != seq or state.given + 1 != given or exposed != state.exposed or state.failure is not None
                or state.recording is not None or given > state.due
                or self._lock._count or self._lock._waiting or self._values_lock._count
                or self._releaser.jobs or self._device_state.owing or self._callbacks.stalled
                or self._lifetime.released or user.released
                or (waits and self._gate is not None and (self._gate.closed or self._releaser.crowded))
                or (append is not None and not append.is_plain(params))):
            return False
        for lifetime in lifetimes:
            if lifetime.released or self._queue not in <dict?> lifetime.uses:   # `Lifetime.use` also bounds the uses
                return False
        # From here on, the append takes place.
        self._lock._owner = PyThread_get_thread_ident()
        self._lock._count = 1
        try:
            if signal_event is not None:
                fence.seq = seq
                signal_event._claimed = self
            state.seq = seq
            try:
                self._uses[self._queue] = number
                for lifetime in lifetimes:
                    (<dict> lifetime.uses)[self._queue] = number
                if waits and self._gate is not None:
                    state.last_wait = seq
                if append is not None:
                    append.begin(self._queue, number, params, before)
                self._note(operation)
                state.given = given
                state.issuing = True
                self._call(append, params, kept, fence)
            except BaseException as error:
                fence = None
                if isinstance(error, Exception):
                    self._queue.refused(operation, before, error)
                raise
            # Errors from here on are those of signal handlers, and leave the operation appended.
            if state.seq != seq:   # a signal handler has appended meanwhile
                self._queue.number_again(operation, False)
                if fence is not None:
                    fence.seq = state.seq
            if fence is not None:
                self._note_marker(marker)
                if self._room.marked < self._room.polled:
                    self._room.note_marker()
                else:
                    self._room.marked = given
        finally:
            state.issuing = False
            state.issued = state.seq
            self._lock.release()
            if signal_event is not None:
                signal_event._fence = fence
                signal_event._claimed = None
        return True

    cdef bint _call(self, QuickAppend append, params, list kept, EventFence fence) except -1:
        if kept is not None:
            for waited in kept:
                while not self._wait_event.call(self._native, (<EventFence> waited)._event, 0, 0):
                    pass
        if append is not None:
            append.call(params)
        if fence is not None:
            while not self._record_event.call(fence._event, self._native, 0, 0):
                pass
        return True

    cdef bint _is_free_of_captures(self) except -1:
        """Ask the driver, which may make this thread wait, so other threads run meanwhile."""
        cdef int code, captured = 0
        visit = None
        if not self._borrowed:   # otherwise the application keeps the native queue open
            if self._releaser_lock._count or self._lifetime.freed:
                return False
            visit = object()   # as `Visit`
            self._lifetime.visitors.add(visit)
        with nogil:
            code = (<Function> self._is_captured._address)(self._native, <uintptr_t> &captured, 0, 0)
        if visit is not None:
            self._lifetime.visitors.discard(visit)
        return code == 0 and captured == 0

    cdef list _fences_of(self, wait_events):
        """Return the fences of events, or None if one of them is not an `EventFence` of this device."""
        if type(wait_events) is not list and type(wait_events) is not tuple:
            return None
        kept = []
        for event in wait_events:
            try:
                fence = event._fence
                if event._device_state is not self._device_state or event._lifetime.released or (
                        type(fence) is not self.fence_class):
                    return None
            except AttributeError:
                return None
            kept.append(fence)
        return kept

    cdef bint _is_free(self, event) except -1:
        """Return whether an append can bind this event."""
        try:
            return (event._device_state is self._device_state and not event._lifetime.released and not event._foreign
                    and event._fence is None and event._claimed is None)
        except AttributeError:
            return False


@cython.final
cdef class QuickAppend:
    """What one `PreparedAppend` adds to the quick appends of its queue: the `NativeAppend` of its driver."""

    cdef QuickQueue _queue
    cdef object _append, _kept
    cdef tuple _states, _lifetimes, _uses, _unreadable, _abandoned
    cdef bint _signals, _waits, _one, _timelines
    cdef NativeFunction _function
    cdef uintptr_t _arguments[4]
    cdef char *_values
    cdef uint64_t _limit
    cdef Py_ssize_t _stride, _count

    def __cinit__(self, QuickQueue queue not None, append, native):
        cdef Py_ssize_t number
        cdef bytearray values = native.values
        states = append.states
        self._count = len(states)
        if len(native.arguments) > 4 or native.stride < 8 or len(values) != native.stride * self._count:
            raise ValueError("at most four arguments and one stride for each value are needed")
        for number in range(len(native.arguments)):
            self._arguments[number] = native.arguments[number]
        self._kept = (native.kept, memoryview(values))   # the view fixes the size and the address
        if not 0 <= native.offset <= native.stride - 8:
            raise ValueError("the value does not lie in its stride")
        self._values, self._stride = PyByteArray_AsString(values) + <Py_ssize_t> native.offset, native.stride
        self._function = NativeFunction(native.function)
        self._queue, self._append, self._unreadable = queue, append, append.unreadable
        self._states, self._lifetimes = states, tuple([state.lifetime for state in states])
        self._uses = tuple([state.lifetime.uses for state in states])
        self._abandoned = tuple([state.page.abandoned_at for state in states if state.page is not None])
        self._timelines, self._limit = append.timelines, append.limit
        self._waits = append.operation == "wait"
        self._signals = append.timelines and not self._waits
        self._one = not append.batch

    def append(self, params, user, wait_events, signal_event, lifetimes):
        """Append with parameters in the form of `Operation.params`, as `quick_append`."""
        return self._queue.run(self, params, user, wait_events, signal_event, lifetimes)

    cdef bint takes(self, params) except -1:
        """Return whether the parameters are values for these semaphores, and none can be too far above another one."""
        if self._one:
            return (PyLong_CheckExact(params) and xsem_is_value(params, self._limit) if self._timelines
                    else params is None)
        if not self._timelines or type(params) is not tuple or len(params) != self._count:
            return False
        for value in params:
            if not PyLong_CheckExact(value) or not xsem_is_value(value, self._limit):
                return False
        return True

    cdef bint is_plain(self, params) except -1:
        """Return whether the semaphores need no other step. Makes no object."""
        cdef Py_ssize_t number
        for lifetime in self._lifetimes:
            if lifetime.released:
                return False
        for address in self._abandoned:   # the page is mapped while its semaphore is not released
            if (<uint32_t *> <uintptr_t> address)[0] != 0:
                return False
        for waited in self._unreadable:
            if waited.signallers.known:
                return False
        if self._signals:
            for number in range(self._count):
                last = self._states[number].last
                if last is not None and PyLong_AsUnsignedLongLong(params if self._one else (<tuple> params)[number]) <= (
                        PyLong_AsUnsignedLongLong(last)):
                    return False
        return True

    cdef bint begin(self, queue, seq, params, list before) except -1:
        """Note the use, and store the values of a signal, and in `before` the values before. Makes no object."""
        cdef Py_ssize_t number
        for uses in self._uses:
            (<dict> uses)[queue] = seq
        if self._signals:
            for number in range(self._count):
                before[number] = self._states[number].last
                self._states[number].last = params if self._one else (<tuple> params)[number]
        return True

    cdef bint call(self, params) except -1:
        """Call the function with the values. Before a repeated call, a signal handler may have written others."""
        cdef Py_ssize_t number
        cdef uint64_t value
        while True:
            if self._timelines:
                for number in range(self._count):
                    value = PyLong_AsUnsignedLongLong(params if self._one else (<tuple> params)[number])
                    memcpy(self._values + number * self._stride, &value, sizeof(value))
            if self._function.call(
                    self._arguments[0], self._arguments[1], self._arguments[2], self._arguments[3]):
                return True


def quick_append(dict entries, semaphores, params, user, wait_events, signal_event, memories, stopped):
    """Append by the `QuickAppend` in `entries`, and return True; return False if there is none, or it cannot."""
    if memories is not _NONE or stopped is not None:
        return False
    try:
        if type(semaphores) is list or type(semaphores) is tuple:
            append = entries.get(tuple([each._state for each in semaphores]))
        else:
            append = entries.get(semaphores._state)
    except (AttributeError, TypeError):
        return False
    if append is None or append.quick is None:
        return False
    return (<QuickAppend?> append.quick)._queue.run(append.quick, params, user, wait_events, signal_event, _NONE)


def quick_barrier(queue, user, wait_events, signal_event, stopped):
    """Append a barrier to a `QuickQueue` or None, as `quick_append`."""
    if queue is None or stopped is not None:
        return False
    return (<QuickQueue?> queue).run(None, None, user, wait_events, signal_event, _NONE)


def retire(operations, seq):
    """Drop the operations up to this number, as `_retire` of `quick.py`."""
    cdef long long last = seq
    drop = operations.popleft
    while operations and <long long> operations[0][0] <= last:
        drop()


_NONE = ()
