"""Exportable memory: allocated with ze_external_memory_export_desc_t, or by another library on the device.

From the source of Intel's driver for Linux, up to 26.31:

- An allocation has one fd. Each export returns the number of this fd, and zeMemFree closes it.
- zeMemGetAllocProperties does not read the flags. It also exports memory that was not allocated as exportable.
- Newer GPUs compress memory that was not allocated as exportable (`intel.compression`), and no function tells whether
  an allocation has the flag. On these GPUs, only memory of `create_allocation` is shared.
- Small allocations that are not exportable are parts of a pool. Their fd is the fd of the pool, and no function tells
  their offset. All allocations of a pool have the identifier of the pool.

The specification does not say who closes an exported fd. The probe finds out whether zeMemFree closes it.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from ctypes import byref, c_size_t, c_void_p
from typing import Final, NamedTuple

from xsem.errors import (
    BadArgumentError,
    BusyError,
    DriverError,
    OutOfMemoryError,
    UnsupportedError,
    WrongDeviceError,
    XsemError,
)
from xsem.spi import duplicate_fd, same_open_file
from xsem.types import MemoryHandleType, OwnedHandle
from xsem_levelzero import ze
from xsem_levelzero.core import Core
from xsem_levelzero.memory import allocate, free, too_large
from xsem_levelzero.results import INVALID, UNSUPPORTED

__all__ = ["Allocation", "Exports", "create_allocation", "probe_exports", "share_allocation"]

_PAGE: Final = 4096
_LARGEST: Final = 1 << 48   # bytes: more than any device has, and few enough to round up
_EXPORT: Final = "zeMemGetAllocProperties"
_ADVICE: Final = ("allocate it with ze_external_memory_export_desc_t, or copy the array into memory of "
                  "create_memory()")


class Exports(NamedTuple):
    """The result of the probe."""

    types: frozenset[MemoryHandleType] = frozenset()   # whose export succeeded
    driver_closes: bool = True   # zeMemFree closes the exported fd, and all exports of an allocation return the same fd
    refusals: dict[MemoryHandleType, str] = {}  # noqa: RUF012  # the reasons, by type; never changed
    answered: bool = True   # False: no memory or no fd was left, so another probe can have another result


class Allocation:
    """Device memory that can be exported."""

    __slots__ = ("_driver_closes", "_owner", "address", "shared", "size", "type")

    def __init__(
        self, type: MemoryHandleType, address: int, size: int, *, driver_closes: bool, shared: bool = False,
        owner: object = None,
    ) -> None:
        self.type = type
        self.address = address   # USM pointer to the first byte
        self.size = size
        self._driver_closes = driver_closes   # see `Exports`
        self.shared = shared   # the memory belongs to another library
        self._owner = owner     # keeps shared memory allocated

    def export(self, core: Core) -> OwnedHandle:
        """Call zeMemGetAllocProperties. The caller owns the fd."""
        return _export(core, self.type, self.address, self._driver_closes)

    def release(self, core: Core) -> None:
        """Call zeMemFree. Importers keep the memory. Shared memory stays allocated; its owner is dropped."""
        try:
            if not self.shared:
                free(core, self.address)
        finally:
            self._owner = None


def probe_exports(core: Core, types: Iterable[MemoryHandleType]) -> Exports:
    """Allocate and export one page for each of these types of ze_device_external_memory_properties_t."""
    found: set[MemoryHandleType] = set()
    refusals: dict[MemoryHandleType, str] = {}
    driver_closes, answered = False, True
    for type in sorted(types, key=lambda each: each.value):
        try:
            driver_closes |= _closes_export(core, type)
        except XsemError as error:
            refusals[type] = error.code_name or str(error)
            answered &= not isinstance(error, BusyError | OutOfMemoryError)
        else:
            found.add(type)
    return Exports(frozenset(found), driver_closes or not found, refusals, answered)


def create_allocation(core: Core, type: MemoryHandleType, size: int, *, driver_closes: bool) -> Allocation:
    """Allocate at least `size` exportable bytes: whole pages."""
    if size > _LARGEST:
        raise too_large(size)
    whole = -(-size // _PAGE) * _PAGE
    address = _allocate(core, type, whole)
    try:
        with _export(core, type, address, driver_closes) as fd:
            _check_covered(fd, whole, type)
        return Allocation(type, address, whole, driver_closes=driver_closes)
    except BaseException:
        free(core, address)
        raise


def share_allocation(
    core: Core, type: MemoryHandleType, address: int, size: int, owner: object, *, driver_closes: bool,
    only: Container[int] | None = None,
) -> tuple[Allocation, int]:
    """Return the allocation of a range of device memory, and the range's offset in it.

    `only`: the allocations that are certainly not compressed, by their first address. None: the GPU compresses none.
    """
    identifier = _check_place(core, address)
    found, length = c_void_p(), c_size_t()
    core.loader.do("zeMemGetAddressRange", core.context, address, byref(found), byref(length))
    base, whole = found.value or 0, length.value
    if address + size > base + whole:
        raise BadArgumentError(
            f"the allocation ends at {base + whole:#x}, before the end of {size} bytes at {address:#x}",
            reason="out_of_range", call="zeMemGetAddressRange")
    if only is not None and base not in only:
        raise UnsupportedError(
            "Intel's driver compresses device memory on this GPU unless it was allocated for export, and no function "
            "tells how an allocation was made, so importers could see other bytes: copy the array into memory of "
            "create_memory(), whose buffers can be shared",
            capability=f"memory.share.{type.value}", reason="may_be_compressed", call="zeMemGetAddressRange")
    # Only parts of a pool have neighbours with their identifier.
    for outside in (base - 1, base + whole):
        kind, neighbour, _ = _properties(core, outside)
        if kind == ze.MEMORY_TYPE_DEVICE and neighbour == identifier:
            raise UnsupportedError(
                f"the array is in a pool of the driver, in which no function tells its place: {_ADVICE}",
                capability=f"memory.share.{type.value}", reason="not_shareable", call="zeMemGetAllocProperties")
    try:
        with _export(core, type, base, driver_closes) as fd:
            _check_covered(fd, address - base + size, type)
    except XsemError as error:
        if error.call != _EXPORT or error.code not in UNSUPPORTED | INVALID:
            raise
        raise UnsupportedError(
            f"the driver does not export the allocation of the array, which was not made exportable: {_ADVICE}",
            capability=f"memory.share.{type.value}", reason="not_shareable", call=error.call, code=error.code,
            code_name=error.code_name) from error
    return Allocation(type, base, whole, driver_closes=driver_closes, shared=True, owner=owner), address - base


# ---- inside
def _allocate(core: Core, type: MemoryHandleType, size: int) -> int:
    desc = ze.DeviceMemAllocDesc.made(pNext=ze.ExportDesc.made(flags=_flag(type)))
    return allocate(core, "zeMemAllocDevice", desc, size, core.device)


def _export(core: Core, type: MemoryHandleType, address: int, driver_closes: bool) -> OwnedHandle:
    """Export the allocation at an address, and return an fd of the caller."""
    if driver_closes:
        return duplicate_fd(_exported(core, type, address), for_driver=False)
    fd = OwnedHandle(_exported(core, type, address))
    os.set_inheritable(fd.fileno(), False)
    return fd


def _exported(core: Core, type: MemoryHandleType, address: int) -> int:
    """Return the number of the fd that the driver exports."""
    out = ze.ExportFd.made(flags=_flag(type), fd=-1)
    properties = ze.MemoryAllocationProperties.made(pNext=out)
    try:
        core.loader.do(_EXPORT, core.context, address, byref(properties), None)
    except OutOfMemoryError as error:
        _check_fds_left(error)
        raise
    if out.fd < 0:
        raise DriverError("the driver exported no file descriptor", reason="driver_error", call=_EXPORT)
    return int(out.fd)


def _check_fds_left(error: XsemError) -> None:
    """Raise `BusyError` if the process cannot open another file descriptor: the driver's code then has this cause."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        raise BusyError("the process cannot open another file descriptor for the exported memory: close some, or raise "
                        "the limit (ulimit -n)", reason="fd_limit", call=error.call, code=error.code,
                        code_name=error.code_name) from error


def _closes_export(core: Core, type: MemoryHandleType) -> bool:
    """Export a page, free it, and return whether the driver has closed the exported fd."""
    with OwnedHandle(os.open(os.devnull, os.O_RDONLY)) as kept:   # a number, so that the duplicate cannot fail
        address = _allocate(core, type, _PAGE)
        try:
            number = _exported(core, type, address)
            os.dup2(number, kept.fileno(), inheritable=False)
        finally:
            free(core, address)
        # Without an answer of the kernel the number leaks: it could belong to another file.
        closed = not same_open_file(kept.fileno(), number)
        if not closed:
            os.close(number)
        return closed


def _check_place(core: Core, address: int) -> int:
    """Refuse an address that is not device memory of this device. Return the identifier of its allocation."""
    kind, identifier, device = _properties(core, address)
    if kind == ze.MEMORY_TYPE_HOST:
        raise BadArgumentError(f"{address:#x} is host memory of Level Zero, which is not shared: use create_memory() "
                               "and a copy", reason="host_array")
    if kind == ze.MEMORY_TYPE_SHARED:
        raise BadArgumentError("shared memory moves between host and device, so Level Zero cannot export it: allocate "
                               "device memory", reason="managed_memory")
    if kind != ze.MEMORY_TYPE_DEVICE:
        raise BadArgumentError(
            f"no device memory of this context is allocated at {address:#x}: the array was freed, the address is "
            "wrong, or the memory belongs to another context (open_device('levelzero', native=…))",
            reason="not_device_memory", call=_EXPORT)
    if device != core.device:
        raise WrongDeviceError(f"the memory at {address:#x} is on another device", expected=f"device {core.device:#x}",
                               actual=f"device {device:#x}", reason="wrong_device")
    return identifier


def _properties(core: Core, address: int) -> tuple[int, int, int]:
    """Return the memory type, the identifier and the device of the allocation at an address."""
    out, device = ze.MemoryAllocationProperties.made(), c_void_p()
    core.loader.do(_EXPORT, core.context, address, byref(out), byref(device))
    return out.type, out.id, device.value or 0


def _check_covered(fd: OwnedHandle, size: int, type: MemoryHandleType) -> None:
    """Refuse memory that one fd does not cover: on a GPU of several tiles, each tile can hold a part."""
    try:
        there = os.lseek(fd.fileno(), 0, os.SEEK_END)
    except OSError:
        return   # the size is not known
    if there < size:
        raise UnsupportedError(
            f"the exported file descriptor has {there} of {size} bytes: use smaller memory, or one tile of the GPU "
            "(ZE_FLAT_DEVICE_HIERARCHY=FLAT)", capability=f"memory.export.{type.value}", reason="several_allocations",
            call=_EXPORT)


def _flag(type: MemoryHandleType) -> int:
    return type.native["levelzero"][1]
