"""Lines that a type checker must refuse. An unneeded ignore is an error, too.

tests/project/test_types.py removes the ignores and checks that every such line is reported.
"""
import xsem


def refused(commands: xsem.CommandList, event: xsem.Event, a: xsem.Semaphore, b: xsem.Semaphore) -> None:
    commands.append_wait([a, b], 7)  # type: ignore[call-overload]          # one value for two semaphores
    commands.append_signal([a, b])  # type: ignore[call-overload]           # none for two
    commands.append_signal(a, [7])  # type: ignore[call-overload]           # a list for one
    commands.append_wait(a, xsem.SignalParams(value=7))  # type: ignore[call-overload]
    commands.append_signal(a, xsem.WaitParams(value=7))  # type: ignore[call-overload]
    commands.append_wait(a, "7")  # type: ignore[call-overload]
    commands.append_wait(a, 7, wait_events=event)  # type: ignore[call-overload]
    commands.append_work(7)  # type: ignore[arg-type]
    event.wait(2.0)  # type: ignore[call-arg]                                   # units are in names
    a.host_wait(7, 2.0)  # type: ignore[call-arg]
    xsem.WaitParams(7)  # type: ignore[call-arg]
    xsem.SignalParams(timeout_ms=100)  # type: ignore[call-arg]             # a signal does not wait


def refused_devices(fd: int, desc: xsem.SemaphoreDesc, device: xsem.Device) -> None:
    xsem.open_device()  # type: ignore[call-arg]                            # nothing is chosen by default
    xsem.SemaphoreDesc.timeline_fd(fd)  # type: ignore[call-arg]            # the exporter's device, or None said aloud
    xsem.MemoryDesc.opaque_fd(fd, device_uuid=None)  # type: ignore[call-arg]
    xsem.SemaphoreDesc.timeline_fd("7", device_uuid=None)  # type: ignore[arg-type]
    desc.name = "other"  # type: ignore[misc]                               # descriptors are frozen
    device.create_semaphore(7)  # type: ignore[arg-type]                    # a member or its name
    device.import_memory(desc)  # type: ignore[arg-type]
    device.command_list(None)  # type: ignore[arg-type]
    device.watch(10.0)  # type: ignore[call-arg]


async def refused_await(a: xsem.Semaphore) -> None:
    await a  # type: ignore[misc]                                           # events are awaited, semaphores are not
