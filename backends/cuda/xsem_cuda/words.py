"""Timelines in pages of the host: streams wait for and write a 64-bit word of the page (stream memory operations)."""

# Measured on an H200 (driver 580.159.04):
# - cuMemHostRegister takes a sealed page, once for each mapping, and a read-only mapping only with the flag READ_ONLY.
#   It returns at once behind an unmet wait. cuMemHostUnregister blocks there, also for an idle page.
# - A wait is met when the signed difference of the word and the value is not negative.
# - The host and other processes see a written word at once. The write wakes no waiter of the page.
# - 1,020 appends behind an unmet wait return at once, and the next one blocks, as for semaphores.

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any, Final

from xsem.portable import Timeline
from xsem.spi import NativeAppend
from xsem.types import SemaphoreKind
from xsem_cuda.direct import address_of, check
from xsem_cuda.results import call
from xsem_cuda.semaphores import SemaphoreToken

__all__ = ["FUNCTION", "LONGEST", "SINCE", "WRITE", "Operation", "Word", "native_words", "register"]

FUNCTION: Final = "cuStreamBatchMemOp"
SINCE: Final = 11070
"""The CUDA version of this form of the function, which needs no setting of the driver, and of its nodes of graphs."""
LONGEST: Final = 255
"""The most operations of one call."""

_PAGE: Final = 4096
_WAIT: Final = 4   # CU_STREAM_MEM_OP_WAIT_VALUE_64. Its flags are 0: CU_STREAM_WAIT_VALUE_GEQ
WRITE: Final = 5   # CU_STREAM_MEM_OP_WRITE_VALUE_64. With flags 0, all earlier writes of the stream come before it
_VALUE_AT: Final = 16   # in the page


class Operation(ctypes.Structure):
    """The layout of CUstreamBatchMemOpParams for a wait or a write of 64 bits."""

    _fields_ = (("operation", ctypes.c_uint), ("address", ctypes.c_uint64), ("value", ctypes.c_uint64),
                ("flags", ctypes.c_uint), ("reserved", ctypes.c_uint64 * 2))


class Word(SemaphoreToken):
    """A timeline's page that is registered. Its handle is the device address of the value."""

    __slots__ = ("page",)

    def __init__(self, driver: Any, page: Timeline) -> None:
        address = register(driver, page.address, _PAGE, read_only=page.read_only)
        super().__init__(driver.CUdeviceptr(address + _VALUE_AT), SemaphoreKind.TIMELINE)
        self.page = page.address   # for cuMemHostUnregister


def register(driver: Any, address: int, size: int, *, read_only: bool = False) -> int:
    """Call cuMemHostRegister for all contexts. Return the device address; cuMemHostUnregister takes the host's."""
    flags = int(driver.CU_MEMHOSTREGISTER_PORTABLE) | int(driver.CU_MEMHOSTREGISTER_DEVICEMAP)
    call(driver.cuMemHostRegister, address, size, flags | int(driver.CU_MEMHOSTREGISTER_READ_ONLY) * read_only)
    try:
        return int(call(driver.cuMemHostGetDevicePointer, address, 0))
    except BaseException:
        call(driver.cuMemHostUnregister, address)
        raise


def native_words(driver: Any, words: Sequence[Word], stream: int, *, signal: bool) -> NativeAppend:
    """Return the call that waits for the words in turn, or writes them, at most `LONGEST`."""
    params = bytearray(ctypes.sizeof(Operation) * len(words))
    kept = (Operation * len(words)).from_buffer(params)
    for operation, word in zip(kept, words, strict=True):
        operation.operation, operation.address = WRITE if signal else _WAIT, word.address
    return NativeAppend(
        (address_of(driver, FUNCTION, SINCE) or 0, functools.partial(check, driver, FUNCTION)),
        (stream, len(words), ctypes.addressof(kept), 0), params, ctypes.sizeof(Operation), kept,
        Operation.value.offset)
