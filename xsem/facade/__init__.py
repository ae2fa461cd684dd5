"""The objects of the application, one class of objects per file.

Appends (`command_list`)
    When an append returns, the operation has reached the driver, in program order. `append_wait` and `append_signal`
    take one semaphore with one parameter, or sequences of the same length. A parameter is never broadcast to several
    semaphores. A sequence is never empty, and no semaphore occurs twice. The facade checks everything before it calls
    the driver, so a batch is appended completely or not at all. `acquire=` and `release=` name memory for a handover.
    OpenCL and Vulkan need the handover (capability `needs_handover`).
Work (`command_list`)
    On a native queue, `append_work` calls the function at once, and the function only enqueues. On `host`, the worker
    thread of the list calls the function in its turn. An exception stops the list.
Streams (`command_list`, `xsem.data.streams`)
    A command list is in order. A borrowed stream is an object with `__cuda_stream__` or `int_ptr`, or a native handle.
    A 0 from an object is the legacy default stream, and the driver gets CU_STREAM_LEGACY. The facade refuses the bare
    int 0, and a stream of another device or context. If the driver can identify an out-of-order queue, the facade
    refuses such a queue (OpenCL). Otherwise the list adds barriers (`in_order=False`, Level Zero).
Prepared appends (`xsem.runtime.queues.prepared_append`)
    `append_signal` and `append_wait` keep the prepared append of their semaphores, so that xsem checks these once. The
    driver prepares its arrays (`SemaphoreQueue.prepare_signal`) at the second append of values, because the preparation
    of a batch costs as much as three appends. Of the batches that begin with the same semaphore, a queue keeps at most
    16 waits and 16 signals. A further batch replaces the oldest one.
Events (`event`)
    `signal_event` binds an event to one operation. A wait uses the binding at the time of its append. `reset()` only
    unbinds. A wait for an unbound event raises an error. A second binding also raises an error: without the error, two
    parts of an application could wait for different operations with the same event. An event has `wait`, `query` and
    `add_done_callback`, and can be awaited. `device.event(native)` borrows an event of torch, CuPy, pyopencl or Level
    Zero.
Memory (`memory`, `buffer`, `image`)
    `map_buffer` maps a range with a shape, a dtype and strides. `map_mipmapped_array` maps an image. A mapping that
    overlaps a mapping in use needs `overlap=True`, because writes through one mapping may be invisible through the
    other. Arrays are exported by `__dlpack__` (versioned), `__cuda_array_interface__` and `numpy()`. The export of an
    array orders nothing. Only a command list orders work. An array keeps its buffer, a buffer keeps its memory, and a
    memory keeps its device.
Export (`semaphore`, `memory`)
    `create_semaphore` and `create_memory` work if the device declares the export. `export(for_device=)` writes the
    importer's UUID into the descriptor. The argument is an open Device, or the UUID that another process reports. A
    sync file is made from an appended signal. Each signal serves one export or one wait. `host_signal`, `host_wait` and
    `value` work if the device declares these features.
Recordings (`recording`)
    `commands.record()` checks and appends work once. `replay({sem: value})` appends the work again, with new values of
    its timelines. The device must declare recording.
Errors (`xsem.errors`)
    Each error has a stable `reason` (docs/errors.md) and can be pickled. An error also has the backend, call, code,
    code name and likely causes. Some codes of a driver cannot concern the call itself (its arguments, the thread's
    context, or the process). Such a code becomes `DriverError(from_earlier_work=True)`, and the error names no file
    descriptor as the cause. On CUDA, INVALID_VALUE and INVALID_CONTEXT concern the call.
"""
