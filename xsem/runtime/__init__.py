"""One open device: the operations in flight on its queues, and the objects that may be freed.

`DeviceState` is the shared state of a device. `Queue` is one native queue with its operations in flight. `Fence` is a
completion token of the driver. `Lifetime` stands for one driver object. The sections below describe the rules that
several modules keep together; each module describes its own part.

Release
    `release()` returns at once, and a second call has no effect. The object is freed when all operations that were
    appended before the release, and that use the object, are done. A marker, a barrier with a fence, tells
    which operations are done. A release and a host wait append one per list. An append adds one after at most 256
    operations, which bounds the operations in flight; a small `max_pending` lowers that number. The append of a wait
    adds one behind itself only while many released objects wait for the release gate.
    Later calls and the releasing thread poll the markers. This thread ends 50 ms after the last release. An idle object
    is freed on the caller's thread. No driver call runs in a finalizer or at interpreter exit.

    Unless a device declares `release_never_blocks`, only the releasing thread frees its objects. It does so only while
    no wait is pending on any list of the backend's devices (`release_gate` has the measurements). `synchronize()`
    gives that thread up to 50 ms to free them. From 64 objects on that wait for such a moment, an append of a wait
    first asks whether a wait is pending. If no wait is pending, the append gives the thread up to 5 ms. From 1,000
    released objects on, one warning for each device says that a wait is always pending. A replay of a recording that
    contains waits counts as a wait. xsem does not see waits in graphs and streams of other libraries, and these still
    hold a free.

    A recording keeps its objects until it is freed. Work in another library's capture keeps its objects until the
    device is released, because xsem cannot see when that graph is destroyed.

Host waits
    A host wait lasts 30 s unless the caller says otherwise. It runs in slices of at most 50 ms, so that Ctrl-C works. A
    timeout has the pending operations as data: semaphore, value wanted, value now, value last signalled here, list, age
    and possible signallers. If the device cannot read values, xsem asks an exporter in the same process. Without such
    an exporter, the message names the first pending operation and the last wait that may be unmet. A timeout also takes
    likely causes from `DeviceDriver.timeout_causes`. If the driver blocks the thread that asks, the report of
    `Device.watch` contains xsem's own records. An append that would make the driver hold the caller raises
    `WouldBlockError`: more than `max_pending` operations behind an unmet wait (1,020 on an H200).

Ctrl-C
    CPython raises KeyboardInterrupt in the main thread at the start of a Python function, after a call, and at the end
    of a loop iteration. So it can come between a call and the line that stores its result, inside ``finally``, and
    inside a finalizer. Each atomic step is therefore one assignment or one call of C code:

    - a hold is an element of a set;
    - a claim ends with the assignment of an attribute (`claims`);
    - locks are those of C code, because `threading.Condition` and `Event` take theirs in Python code; from Python 3.14
      on, `xsem.data.locks.Lock` adds a safe beginning of a ``with`` statement;
    - threads exchange work through a `deque`, and wait for it with `Pause`.

    The next call continues an interrupted release. An append is recorded before the driver's call, and the record is
    removed if the driver refuses. An append that Ctrl-C interrupts in the driver's call counts as appended, because the
    driver may have it. A new object of the driver belongs to its `Lifetime`; before it has one, an interrupt releases
    it (`DeviceState.making`). The loss is at most the result of one system call that has just returned, or a handle
    that a finalizer was about to close.
"""
