"""Transfers of a pipe that wait in an asyncio event loop."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from xsem.ipc.message import Message, check_nt_content
from xsem.ipc.pipes.calls import PipeError
from xsem.ipc.pipes.deadlines import Deadline
from xsem.ipc.pipes.loop_waits import ended
from xsem.ipc.pipes.pipe import NOT_READ, NOTHING_SENT, OTHER_RECEIVES, OTHER_SENDS, Pipe
from xsem.ipc.pipes.transit import settle_all
from xsem.types import MemoryDesc, SemaphoreDesc

__all__ = ["receive", "send"]

_RETRY_S: Final = 0.005


async def send(
    pipe: Pipe, descs: Sequence[SemaphoreDesc | MemoryDesc], payload: bytes | bytearray | memoryview,
    timeout_s: float | None,
) -> None:
    """Send one message, as `Pipe.send` does. The event loop runs meanwhile."""
    deadline = Deadline(timeout_s)
    pipe.fileno()
    data, numbers = check_nt_content(descs, payload)
    await _turn(pipe._sending, deadline, OTHER_SENDS)
    try:
        outgoing = pipe._outgoing(descs, data, numbers)
        with outgoing as transfer, outgoing:
            transfer.start()
            if not await ended(transfer, deadline) and transfer.cancel():
                raise deadline.passed(NOT_READ)
        outgoing.check()
    except PipeError as error:
        raise pipe._refusal(error) from error
    finally:
        pipe._sending.release()


async def receive(pipe: Pipe, timeout_s: float | None) -> Message:
    """Receive one message, as `Pipe.receive` does. The event loop runs meanwhile."""
    deadline = Deadline(timeout_s)
    pipe.fileno()
    await _turn(pipe._receiving, deadline, OTHER_RECEIVES)
    try:
        settle_all()
        while (data := pipe._incoming.finished()) is None:
            with pipe._incoming.begin() as transfer, transfer:
                transfer.start()
                if not await ended(transfer, deadline) and transfer.cancel():
                    raise deadline.passed(NOTHING_SENT)
        return pipe._message(data)
    except PipeError as error:
        raise pipe._refusal(error) from error
    finally:
        pipe._receiving.release()


async def _turn(lock: threading.Lock, deadline: Deadline, why: str) -> None:
    """Take the right to transfer in one direction. A thread may have it, so the loop asks again and again."""
    import asyncio  # already loaded: the caller runs in an event loop

    while not lock.acquire(blocking=False):
        left = deadline.left_s
        if left == 0.0:
            raise deadline.passed(why)
        await asyncio.sleep(_RETRY_S if left is None else min(_RETRY_S, left))
