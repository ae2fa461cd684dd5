"""The objects that an application holds: one noun a file.

Appends (`command_list`)
    An append has reached the driver, in program order, when it returns. `append_wait` and `append_signal` take one
    semaphore with one parameter, or sequences of the same length. A parameter is never broadcast to several semaphores,
    a sequence is never empty, and no semaphore occurs twice. The facade checks everything before it calls the driver,
    so a batch is appended whole or not at all. `acquire=` and `release=` name memory that changes hands: OpenCL and
    Vulkan need it (capability `needs_handover`).
Work (`command_list`)
    On a native queue, `append_work` calls the function at once; the function only enqueues. On `host`, the list's
    worker calls it in its turn. An exception stops the list.
Streams (`command_list`, `xsem.data.streams`)
    A command list is in order. A borrowed stream is an object with `__cuda_stream__` or `int_ptr`, or a native handle.
    A 0 from an object is the legacy default stream, which the driver gets as CU_STREAM_LEGACY. The bare int 0 is
    refused. A stream of another device or context is refused. A borrowed queue that is out of order is refused where
    the driver can tell (OpenCL). Where it cannot, the list adds barriers (`in_order=False`, Level Zero).
Prepared appends (`prepared`, `xsem.runtime.queues.prepared_append`)
    `commands.prepare_signal(sems)` and `prepare_wait` return a callable that repeats one append with new values. xsem
    checks the semaphores once, and the driver prepares its arrays once (`CommandListDriver.prepare_signal`, whose
    default is `append_signal`). Each call has all the guarantees of an append. The prepared append registers as one
    user of all its semaphores. The last signalled values stay together until other code signals or reads one of them.
    Every unusual case takes the ordinary append. An append of plain values to a semaphore, or to a list of semaphores,
    that the command list had before is such a call too. A batch is prepared when it comes a second time, because to
    prepare a batch costs three appends. At most 16 batches that begin with the same semaphore are kept; the oldest
    one goes first.
Events (`event`)
    `signal_event` binds an event to one operation. A wait uses the binding at the time of its append. `reset()` only
    unbinds. A wait for an unbound event raises, and so does a second binding: a silent one would make two parts of an
    application wait for different operations under one name. An event has `wait`, `query` and `add_done_callback`, and
    can be awaited. `device.event(native)` borrows an event of torch, CuPy, pyopencl or Level Zero.
Memory (`memory`, `buffer`, `image`)
    `map_buffer` maps a range with a shape, a dtype and strides; `map_mipmapped_array` maps an image. A mapping that
    overlaps one in use needs `overlap=True`, because writes through one may stay invisible through the other. Arrays
    are exported by `__dlpack__` (versioned), `__cuda_array_interface__` and `numpy()`. The export of an array orders
    nothing; only a command list orders work. An array keeps its buffer, a buffer its memory, a memory its device.
Export (`semaphore`, `memory`)
    `create_semaphore` and `create_memory` exist where the device declares the export. `export(for_device=)` writes the
    importer's UUID into the descriptor: of an open Device, or the UUID that another process reports. A sync file is
    made from an appended signal, and each signal serves one export or one wait. `host_signal`, `host_wait` and `value`
    work on semaphores of devices that declare them.
Recordings (`recording`)
    `commands.record()` checks and appends work once; `replay({sem: value})` appends it again with new values of its
    timelines. Only devices that declare recording have it.
Errors (`xsem.errors`)
    Each error has a stable `reason` (docs/errors.md), can be pickled, and holds the backend, call, code, code name and
    likely causes. Some codes of a driver cannot concern the call itself: its arguments, the thread's context, or the
    process. Such a code becomes `DriverError(from_earlier_work=True)`, and no file descriptor is named as its cause.
    On CUDA, INVALID_VALUE and INVALID_CONTEXT concern the call.
"""
