"""asyncio."""
import asyncio

import xsem


async def serve(device: xsem.Device, sem: xsem.Semaphore, stream: int) -> None:
    commands = device.command_list(stream)
    done = device.create_event()
    for value in range(1, 1000, 2):
        commands.append_wait(sem, value)
        commands.append_signal(sem, value + 1, signal_event=done)
        try:
            async with asyncio.timeout(2.0):             # cancels the wait, not the work
                await done
        except TimeoutError:
            print(device.pending())
            raise
        done.reset()


async def other_loop(event: xsem.Event, wake: asyncio.Event) -> None:   # trio, Qt, …: the primitive under await
    event.add_done_callback(lambda _: wake.set())
