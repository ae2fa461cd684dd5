"""Three semaphores of three kinds in one call, with event lists."""
import torch

import xsem


def step(device: xsem.Device, timeline: xsem.Semaphore, binary: xsem.Semaphore, mutex: xsem.Semaphore) -> None:
    commands = device.command_list(torch.cuda.current_stream())
    copied = torch.cuda.Event()
    copied.record(torch.cuda.Stream())
    done = device.create_event()
    commands.append_wait(
        [timeline, binary, mutex],
        [7, None, xsem.WaitParams(key=1, timeout_ms=100)],      # same length, no broadcast
        wait_events=[device.event(copied)],
    )
    commands.append_signal([timeline, binary, mutex], [8, None, xsem.SignalParams(key=2)], signal_event=done)
    done.wait(timeout_s=2.0)
    done.reset()
    commands.append_wait([timeline, binary], 7)  # type: ignore[call-overload]   # one int for two: refused
