"""D3D11 keyed mutex: wait acquires, signal releases. An int is never a key."""
import cupy

import xsem


def frame(device: xsem.Device, shared_handle: int, a: cupy.ndarray) -> None:
    with device.import_semaphore(xsem.SemaphoreDesc.d3d11_keyed_mutex(shared_handle)) as mutex:
        commands = device.command_list(cupy.cuda.get_current_stream())
        commands.append_wait(mutex, xsem.WaitParams(key=0, timeout_ms=500))
        a *= 2
        commands.append_signal(mutex, xsem.SignalParams(key=1))
        try:
            commands.synchronize()
        except xsem.WaitTimeoutError as error:       # CUDA_ERROR_TIMEOUT, seen at the next call on the stream
            print(error.call, error.code_name, error.pending)
        commands.append_wait(mutex, 0)               # BadArgumentError: "keyed mutex takes WaitParams(key=…)"
