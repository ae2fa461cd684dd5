"""Convert xsem's semaphore descriptors and parameters to the driver's structs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from xsem.types import INFINITE, OsHandleKind, OwnedHandle, SemaphoreDesc, SemaphoreKind, SignalParams, WaitParams
from xsem_cuda.tokens import DriverObject

__all__ = ["PARAMS_SIZE", "Batches", "SemaphoreToken", "fill_handle", "handle_number", "semaphore_descriptor"]

PARAMS_SIZE: Final = 144
"""Size of CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS and ..._WAIT_PARAMS, in bytes. The first 8 bytes are fence.value."""

_VALUE_KINDS: Final = frozenset({SemaphoreKind.BINARY, SemaphoreKind.TIMELINE})


class SemaphoreToken(DriverObject):
    """An imported semaphore."""

    __slots__ = ("kind", "plain")

    def __init__(self, native: Any, kind: SemaphoreKind) -> None:
        super().__init__(native)
        self.kind = kind
        self.plain = kind in _VALUE_KINDS   # its parameter is a value or nothing


def handle_number(handle: object) -> int:
    """Return a descriptor's handle as a number. Its owner keeps it."""
    return handle if isinstance(handle, int) else handle.fileno()  # type: ignore[attr-defined]


def fill_handle(native: Any, desc: Any, handle: OwnedHandle | None, nvsci: str) -> object:
    """Write the handle or the name into a driver's struct. Return what must live until the driver's call returns."""
    kind = desc.type.os_handle_kind
    if kind is OsHandleKind.FD:
        native.handle.fd = handle_number(desc.handle if handle is None else handle)
    elif kind is OsHandleKind.NVSCI:
        setattr(native.handle, nvsci, handle_number(desc.handle))
    elif desc.name is None:
        # A Windows handle can be a negative int. The binding raises TypeError for it.
        native.handle.win32.handle = handle_number(desc.handle if handle is None else handle) % 2**64
    else:
        # "a NULL-terminated array of UTF-16 characters". The binding stores the address of the bytes, without a
        # reference.
        name: bytes = (desc.name + "\0").encode("utf-16-le")
        native.handle.win32.name = name
        return name
    return None


def semaphore_descriptor(driver: Any, desc: SemaphoreDesc, handle: OwnedHandle | None) -> tuple[Any, object]:
    """Return the CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, and an object to keep alive until the driver's call returns."""
    native = driver.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
    native.type = driver.CUexternalSemaphoreHandleType(desc.type.native["cuda"][1])
    return native, fill_handle(native, desc, handle, "nvSciSyncObj")


class Batches:
    """Parameter structs of one queue, for its signals or for its waits."""

    # Creating a struct takes 0.6 us, writing a value into one 0.04 us. So those of plain semaphores are reused: the
    # appends of a queue never overlap, and the driver has read the structs when its call returns.

    def __init__(self, driver: Any, *, signal: bool) -> None:
        if signal:
            self._struct = driver.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS
            self._skip_memsync = int(driver.CUDA_EXTERNAL_SEMAPHORE_SIGNAL_SKIP_NVSCIBUF_MEMSYNC)
        else:
            self._struct = driver.CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS
            self._skip_memsync = int(driver.CUDA_EXTERNAL_SEMAPHORE_WAIT_SKIP_NVSCIBUF_MEMSYNC)
        self._reused: list[tuple[Any, Any]] = []   # each struct with its params.fence

    def fill(
        self, semaphores: Sequence[SemaphoreToken], params: Sequence[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Return the driver's two arrays: semaphores and parameters. The next call can reuse the parameters."""
        natives = [semaphore.native for semaphore in semaphores]
        if not all(semaphore.plain for semaphore in semaphores):
            return natives, [self._special(param) for param in params]
        while len(self._reused) < len(natives):
            struct = self._struct()
            self._reused.append((struct, struct.params.fence))
        for (_, fence), param in zip(self._reused, params, strict=False):   # _reused can be longer than the batch
            fence.value = param.value or 0
        return natives, [struct for struct, _ in self._reused[:len(natives)]]

    def _special(self, param: SignalParams | WaitParams) -> Any:
        struct = self._struct()
        if param.value is not None:
            struct.params.fence.value = param.value
        if param.key is not None:
            struct.params.keyedMutex.key = param.key
            if isinstance(param, WaitParams):
                struct.params.keyedMutex.timeoutMs = INFINITE if param.timeout_ms is None else param.timeout_ms
        if param.nvscisync_fence is not None:
            struct.params.nvSciSync.fence = param.nvscisync_fence
        if param.skip_nvscibuf_memsync:
            struct.flags = self._skip_memsync
        return struct
