"""Arrays over mapped memory: the DLPack device, and the bytes of an array."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import numpy as np

import xsem
from xsem.plugins import registry
from xsem.spi import Memory
from xsem_conformance.case import measures
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, Symptom, expect

_CPU: Final = 1
_DEFINED: Final = frozenset({1, 2, 3, 4, *range(7, 19)})
"""The values of DLDeviceType in dlpack.h, version 1.2."""
_NUMBERED_0: Final = {1: "kDLCPU", 3: "kDLCUDAHost", 11: "kDLROCMHost"}
"""Types of host memory. dlpack.h specifies the id 0 for these types, and NumPy creates arrays of them."""


@check("XSEM-BUF-006")
def dlpack_device_is_the_memorys_device(context: CaseContext, case: Case) -> None:
    """Each query returns the same DLPack device, which DLPack defines, and an array shows the memory's bytes."""
    # Other devices of the backend have other DLPack devices, except for host memory.
    found = context.driver.dlpack_device()
    expect(found == context.driver.dlpack_device(), "dlpack_device differs from call to call")
    if found is not None:
        expect(isinstance(found, tuple) and [type(each) for each in found] == [int, int],
               f"{found!r} is not a DLPack device: a type and an id as integers")
        expect(found[0] in _DEFINED and found[1] >= 0, f"{found} is not a DLPack device")
        if found[0] in _NUMBERED_0:
            expect(found[1] == 0, f"the id of {_NUMBERED_0[found[0]]} is 0, not {found[1]}")
        else:
            _others_differ(context, found)
    # An array needs memory of the exporter or of the device.
    with (contextlib.suppress(BlockedError), _memory(context) as (memory, shared),
          memory.map_buffer(4096, 4096) as buffer):
        _array_is_right(context, found, buffer, shared)
    expect(found == context.driver.dlpack_device(), "dlpack_device differs after a mapping")


def _others_differ(context: CaseContext, found: tuple[int, int]) -> None:
    info = context.device.info
    for other in xsem.devices(info.backend):
        if other.id == info.id:
            continue
        with contextlib.suppress(xsem.XsemError):   # the other device cannot be opened here
            driver = registry().get(info.backend).open(other.index)
            try:
                same = isinstance(driver, Memory) and driver.dlpack_device() == found
            finally:
                driver.close()
            expect(not same, f"{info.id} and {other.id} have one DLPack device, {found}")


@contextlib.contextmanager
def _memory(context: CaseContext) -> Iterator[tuple[xsem.Memory, Shared | None]]:
    """Yield memory of the exporter with its numbers. Without such memory, yield memory that the device creates."""
    try:
        shared = context.memory()
    except BlockedError:
        made = sorted(context.device.capabilities.memory_export)
        if not made:
            raise
        with context.device.create_memory(made[0], 1 << 16) as memory:
            yield memory, None
    else:
        yield context.here.get(shared.here), shared


def _array_is_right(
    context: CaseContext, found: tuple[int, int] | None, buffer: xsem.Buffer, shared: Shared | None
) -> None:
    if found is None:
        return
    expect(buffer.__dlpack_device__() == found, f"another driver of the device gives {buffer.__dlpack_device__()}")
    if found[0] not in _NUMBERED_0:
        return   # an array of this type needs a library of the vendor
    try:
        array = np.from_dlpack(buffer)
    except BufferError as error:
        expect(found[0] != _CPU, f"NumPy cannot make an array of memory of type {_NUMBERED_0[found[0]]}: {error}")
        return
    if shared is None:
        buffer.copy_from_host(np.full(4096, 0x3c, np.uint8), timeout_s=context.patience_s)
    else:
        producer, _ = context.ends(IN)
        writes = producer.new_list()
        producer.write(writes, shared, b"\x3c" * 4096, 4096)
        producer.finish(writes, "a copy")
        producer.release(writes)
    expect((array == 0x3c).all(), "an array over mapped memory shows other bytes than the memory", Symptom.OTHER_BYTES)
    if found[0] == _CPU and shared is not None:
        buffer.numpy()[:] = 0x3d
        expect(measures.read_there(context, shared, 4096, 4096) == b"\x3d" * 4096,
               "bytes written through an array do not reach the memory", Symptom.OTHER_BYTES)
