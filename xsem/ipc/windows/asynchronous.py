"""Transfers of a pipe that wait in an asyncio event loop."""

from __future__ import annotations

from collections.abc import Sequence

from xsem.ipc.message import Message, check_nt_content
from xsem.ipc.windows.calls import PipeError
from xsem.ipc.windows.deadlines import Deadline, Turn
from xsem.ipc.windows.loop_waits import ended
from xsem.ipc.windows.pipe import NOT_READ, NOTHING_SENT, OTHER_RECEIVES, OTHER_SENDS, Pipe
from xsem.ipc.windows.transit import settle_all
from xsem.types import MemoryDesc, SemaphoreDesc

__all__ = ["receive", "send"]


async def send(
    pipe: Pipe, descs: Sequence[SemaphoreDesc | MemoryDesc], payload: bytes | bytearray | memoryview,
    timeout_s: float | None,
) -> None:
    """Send one message, as `Pipe.send` does. The event loop runs meanwhile."""
    deadline = Deadline(timeout_s)
    pipe.fileno()
    data, numbers = check_nt_content(descs, payload)
    turn = Turn(pipe._sending, deadline, OTHER_SENDS)
    try:
        await _wait(turn)
        outgoing = pipe._outgoing(descs, data, numbers)
        with outgoing as call:
            call.start()
            if not await ended(call, deadline) and call.cancel():
                raise deadline.passed(NOT_READ)
        outgoing.check()
    except PipeError as error:
        raise pipe._refusal(error) from error
    finally:
        pipe._sending.pop(turn, None)


async def receive(pipe: Pipe, timeout_s: float | None) -> Message:
    """Receive one message, as `Pipe.receive` does. The event loop runs meanwhile."""
    deadline = Deadline(timeout_s)
    pipe.fileno()
    turn = Turn(pipe._receiving, deadline, OTHER_RECEIVES)
    try:
        await _wait(turn)
        settle_all()
        return pipe._message(await _data(pipe, deadline))
    finally:
        pipe._receiving.pop(turn, None)


async def _data(pipe: Pipe, deadline: Deadline) -> bytes:
    try:
        while (data := pipe._incoming.finished()) is None:
            with pipe._incoming.begin() as call:
                call.start()
                if not await ended(call, deadline) and call.cancel():
                    raise deadline.passed(NOTHING_SENT)
    except PipeError as error:
        raise pipe._refusal(error) from error
    return data


async def _wait(turn: Turn) -> None:
    """Wait for the right to transfer."""
    import asyncio  # already loaded: the caller runs in an event loop

    while pause_s := turn.take():   # noqa: ASYNC110 - a thread cannot set an event of the loop
        await asyncio.sleep(pause_s)
