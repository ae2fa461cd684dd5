"""Steps of an event loop of asyncio, for tests of what is awaited."""

from __future__ import annotations

import asyncio

__all__ = ["eventually", "settle"]


async def settle() -> None:
    """Let the loop run every ready callback."""
    for _ in range(5):
        await asyncio.sleep(0)


async def eventually(task: asyncio.Task[None]) -> None:
    """Wait for the end of a task, whatever it is."""
    async with asyncio.timeout(10):
        await asyncio.wait([task])
