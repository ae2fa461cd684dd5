"""`ipc.asend` and `ipc.areceive` through a pipe of Windows, in both event loops of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from support import windows_objects as nt
from support.fixtures import refused

from xsem import ipc
from xsem.data.file_descriptors import same_open_file
from xsem.errors import BadHandleError, ReleasedError, UnsupportedError, WaitTimeoutError
from xsem.ipc import wire
from xsem.ipc.windows import loop_waits, transit
from xsem.types import OwnedHandle, SemaphoreDesc

Ends = tuple[ipc.Pipe, ipc.Pipe]
Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["ProactorEventLoop", "SelectorEventLoop"])
def run(request: pytest.FixtureRequest) -> Run:
    def act(work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=getattr(asyncio, request.param)) as runner:
            return runner.run(asyncio.wait_for(work, nt.BOUND_S))

    return act


@pytest.fixture
def ends() -> Iterator[Ends]:
    with ipc.listen() as listener:
        a = ipc.connect(listener.name)
        b = listener.accept(timeout_s=nt.BOUND_S)
    with a, b:
        yield a, b
    transit.settle_all()
    assert not loop_waits._waiting


@pytest.fixture(scope="module", autouse=True)
def no_handle_left(drivers_started: None) -> Iterator[None]:
    """All tests of this module together leave as many handles as before.

    Threads of Windows wait for the loops. They and their events live for five seconds after a wait, so that a count for
    each test waited for their end each time.
    """
    with nt.handles_as_before():
        yield


@pytest.fixture
def desc() -> Iterator[SemaphoreDesc]:
    with nt.closing(nt.event()) as event:
        yield SemaphoreDesc.opaque_win32(event, device_uuid=None)


async def waiting(pipe: ipc.Pipe, **arguments: Any) -> asyncio.Task[ipc.Message]:
    """Return a receive that waits in the loop."""
    task = asyncio.create_task(ipc.areceive(pipe, **arguments))
    while not loop_waits._waiting:   # noqa: ASYNC110 - until it waits
        await asyncio.sleep(0)
    return task


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()


def test_message_crosses_while_the_loop_runs(run: Run, ends: Ends, desc: SemaphoreDesc) -> None:
    async def exchange() -> None:
        receiving = await waiting(ends[1])
        assert not receiving.done()
        await ipc.asend(ends[0], desc, payload=b"frame")
        with await receiving as message:
            handle = message.semaphores[0].handle
            assert isinstance(handle, OwnedHandle)
            assert isinstance(desc.handle, int)
            assert same_open_file(handle.fileno(), desc.handle)
            assert message.payload == b"frame"

    run(exchange())


def test_send_waits_in_the_loop_until_the_peer_reads(run: Run, ends: Ends) -> None:
    payload = bytes(range(256)) * 256

    async def fill() -> int:
        count = 0
        while True:
            sending = asyncio.create_task(ipc.asend(ends[0], payload=payload))
            count += 1
            while not sending.done() and not loop_waits._waiting:   # noqa: ASYNC110 - until it is sent or waits
                await asyncio.sleep(0)
            if not sending.done():
                assert (await ipc.areceive(ends[1])).payload == payload
                await sending
                return count

    count = run(fill())
    assert count > 1
    for _ in range(count - 1):
        assert ipc.receive(ends[1]).payload == payload
    with pytest.raises(WaitTimeoutError):
        ipc.receive(ends[1], timeout_s=0)


def test_many_receives_wait_at_once(run: Run) -> None:
    """More than the thread pool of asyncio has threads."""
    count = 50

    async def exchange(listener: ipc.PipeListener, stack: contextlib.ExitStack) -> list[bytes]:
        pairs = []
        for _ in range(count):
            a = stack.enter_context(ipc.connect(listener.name))
            pairs.append((a, stack.enter_context(listener.accept(timeout_s=nt.BOUND_S))))
        receiving = [asyncio.create_task(ipc.areceive(b, timeout_s=None)) for _, b in pairs]
        while len(loop_waits._waiting) < count:   # noqa: ASYNC110 - until all wait
            await asyncio.sleep(0)
        for number, (a, _) in reversed(list(enumerate(pairs))):
            await ipc.asend(a, payload=bytes([number]))
        return [(await each).payload for each in receiving]

    with contextlib.ExitStack() as stack, ipc.listen() as listener:
        assert run(exchange(listener, stack)) == [bytes([number]) for number in range(count)]


def test_time_limits_and_bad_arguments(run: Run, ends: Ends) -> None:
    with pytest.raises(WaitTimeoutError, match=r"the peer sent nothing for 0\.01 s"):
        run(ipc.areceive(ends[0], timeout_s=0.01))
    refused(lambda: run(ipc.areceive(ends[0], timeout_s=0)), "timeout", WaitTimeoutError)
    refused(lambda: run(ipc.areceive(ends[0], timeout_s=-1)), "bad_timeout")
    refused(lambda: run(ipc.asend(ends[0], payload=bytes(65537))), "payload_too_long")
    ends[0].close()
    refused(lambda: run(ipc.asend(ends[0])), "handle_closed", ReleasedError)
    refused(lambda: run(ipc.areceive(ends[0])), "handle_closed", ReleasedError)
    refused(lambda: run(ipc.asend(ends[1])), "peer_closed")


def test_closed_peer_ends_a_wait_in_the_loop(run: Run, ends: Ends) -> None:
    async def wait() -> None:
        receiving = await waiting(ends[1])
        ends[0].close()
        await receiving

    refused(lambda: run(wait()), "peer_closed")


def test_cancelled_receive_leaves_the_pipe_usable(run: Run, ends: Ends, desc: SemaphoreDesc) -> None:
    async def cancel() -> None:
        await cancelled(await waiting(ends[1]))
        await ipc.asend(ends[0], desc, payload=b"frame")
        with await ipc.areceive(ends[1]) as message:
            assert message.payload == b"frame"

    run(cancel())


def test_cancelled_receive_loses_no_message(run: Run, ends: Ends, desc: SemaphoreDesc) -> None:
    async def cancel() -> None:
        receiving = await waiting(ends[1])
        ipc.send(ends[0], desc, payload=b"arrived")   # without a turn of the loop
        await cancelled(receiving)

    run(cancel())
    with ipc.receive(ends[1], timeout_s=0) as message:
        assert message.payload == b"arrived"
        assert len(message.semaphores) == 1


def test_cancelled_send_sends_nothing_or_the_whole_message(run: Run, ends: Ends, desc: SemaphoreDesc) -> None:
    payload = bytes(65536)

    async def cancel() -> int:
        count = 0
        while True:
            sending = asyncio.create_task(ipc.asend(ends[0], desc, payload=payload))
            while not sending.done() and not loop_waits._waiting:   # noqa: ASYNC110 - until it is sent or waits
                await asyncio.sleep(0)
            if not sending.done():
                await cancelled(sending)
                return count
            count += 1

    count = run(cancel())
    assert ends[0]._transit.messages == count
    for _ in range(count):
        with ipc.receive(ends[1]) as message:
            assert len(message.payload) == 65536
    ipc.send(ends[0], payload=b"next")
    assert ipc.receive(ends[1]).payload == b"next"


def test_calls_for_one_direction_take_turns(run: Run, ends: Ends) -> None:
    """The receive of a thread, and two of the loop."""
    found: list[bytes] = []
    thread = threading.Thread(target=lambda: found.append(ipc.receive(ends[1], timeout_s=nt.BOUND_S).payload))

    async def exchange() -> list[bytes]:
        thread.start()
        while not ends[1]._receiving:   # noqa: ASYNC110 - until the thread receives
            await asyncio.sleep(0)
        with pytest.raises(WaitTimeoutError, match="another thread receives"):
            await ipc.areceive(ends[1], timeout_s=0.01)
        two = [asyncio.create_task(ipc.areceive(ends[1])) for _ in range(2)]
        for number in range(3):
            await ipc.asend(ends[0], payload=bytes([number]))
        return [(await each).payload for each in two]

    assert sorted(run(exchange())) == [b"\1", b"\2"]
    thread.join()
    assert found == [b"\0"]


def test_pipe_of_multiprocessing_is_refused_by_name(run: Run) -> None:
    near, far = multiprocessing.Pipe()
    with near, far:
        for act in (lambda: run(ipc.asend(near)), lambda: run(ipc.areceive(far)), lambda: ipc.send(near),
                    lambda: ipc.receive(far)):
            with pytest.raises(UnsupportedError, match=r"PipeConnection .* which process created the pipe"):
                act()


def test_handle_count_is_flat_over_many_transfers(run: Run, ends: Ends, desc: SemaphoreDesc) -> None:
    event = desc.handle
    assert isinstance(event, int)

    async def some(count: int) -> int:
        for turn in range(count):
            receiving = await waiting(ends[1])
            if turn % 3 == 0:
                await cancelled(receiving)
                continue
            if turn % 3 == 1:
                await ipc.asend(ends[0], desc)
                (await receiving).close()
                continue
            message = wire.encode_nt([desc, desc], [event, 0x7770], b"", event)   # the second number is not open
            nt.write_to_pipe(ends[0], message)
            with pytest.raises(BadHandleError):
                await receiving
        ends[0]._transit.settle()
        return nt.handle_count()

    run(some(9))
    before = run(some(9))
    assert run(some(300)) <= before
