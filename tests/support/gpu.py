"""Helpers for tests on a real GPU: which devices a test needs, and that a call does not block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

import xsem
from xsem.types import MemoryHandleType, SemaphoreHandleType

__all__ = ["AT_ONCE_S", "SIZE", "Rig", "at_once", "needs_gpu", "rig", "vulkan_gpu"]

AT_ONCE_S = 1.0   # far above the cost of a call, far below the timeout of an unmet wait
SIZE = 1 << 20


def needs_gpu(*backends: str) -> None:
    """Skip the test unless the first device of CUDA is a device of each of these backends, too."""
    found = {}
    for backend in ("cuda", *backends):
        try:
            found[backend] = [info.uuid for info in xsem.devices(backend)]
        except xsem.BackendUnavailableError as error:
            pytest.skip(f"needs a GPU with {', '.join(('CUDA', *backends))}: {backend}: {error}")
    missing = [backend for backend, uuids in found.items() if not set(uuids).issuperset(found["cuda"][:1] or [None])]
    if missing:
        pytest.skip(f"needs a GPU with {', '.join(('CUDA', *backends))}: no device of {', '.join(missing)}")


def vulkan_gpu(*directions: str) -> xsem.DeviceInfo:
    """Return the first device of Vulkan that exports timelines ("export"), imports them ("import") or both."""
    try:
        found = xsem.devices("vulkan")
    except xsem.BackendUnavailableError as error:
        pytest.skip(f"needs a GPU with a Vulkan driver: {error}")
    for info in found:
        with xsem.open_device(info) as device:
            declared = {"export": device.capabilities.semaphore_export, "import": device.capabilities.semaphore_import}
        if all(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD in declared[each] for each in directions):
            return info
    pytest.skip(f"none of {', '.join(info.name for info in found)} has {' and '.join(directions)} of timelines")


def at_once(*calls: Callable[[], object]) -> None:
    """Check that these calls do not block: what they would wait for comes only later, from the same thread."""
    began = time.monotonic()
    for call in calls:
        call()
    assert time.monotonic() - began < AT_ONCE_S


class Rig(NamedTuple):
    """Memory of Vulkan, and its import."""

    cuda: xsem.Device
    vulkan: xsem.Device
    there: xsem.Memory
    here: xsem.Memory


@pytest.fixture
def rig() -> Iterator[Rig]:
    needs_gpu("vulkan")
    with xsem.open_device("cuda:0") as cuda, xsem.open_device("vulkan", uuid=cuda.info.uuid) as vulkan:
        there = vulkan.create_memory(MemoryHandleType.OPAQUE_FD, SIZE)
        with there.export(for_device=cuda) as desc:
            here = cuda.import_memory(desc)
        yield Rig(cuda, vulkan, there, here)
