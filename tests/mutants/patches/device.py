"""Faults in contexts, in errors, and in the properties of the backend."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import xsem_cuda.backend as backend
from patches.base import instead, patch
from xsem.types import Capabilities, HealthCheck
from xsem_cuda import device as _device
from xsem_cuda import fences as _fences
from xsem_cuda import images as _arrays
from xsem_cuda import queue as _lists
from xsem_cuda import results as _call
from xsem_cuda.backend import CudaBackend
from xsem_cuda.context import Context
from xsem_cuda.device import CudaDevice


@patch
def errors_swallowed() -> None:
    """A call that the driver refuses counts as done."""
    for module in (_arrays, _device, _lists, _fences):
        @instead(module, "call")
        def call(before: Any, function: Any, *args: Any) -> Any:
            result = function(*args)
            code = int(result[0])
            if code == 600:
                return _call.NOT_READY
            return (result[1] if len(result) == 2 else result[1:]) if code == 0 else 0


@patch
def not_ready_is_an_error() -> None:
    """A query of pending work counts as a failure."""
    @instead(_fences, "call")
    def call(before: Any, function: Any, *args: Any) -> Any:
        result = before(function, *args)
        if result is _call.NOT_READY:
            raise _call._from_code(function.__name__, 999, "CUDA_ERROR_UNKNOWN")
        return result


@patch
def context_not_entered() -> None:
    """Calls use the current context of the thread."""
    @instead(Context, "__enter__")
    def enter(before: Any, self: Any) -> None:
        return None

    @instead(Context, "__exit__")
    def leave(before: Any, self: Any, *exc: Any) -> None:
        return None


@patch
def context_given_back_at_once() -> None:
    """The primary context is released when it has been opened."""
    @instead(CudaDevice, "__init__")
    def init(before: Any, self: Any, driver: Any, device: Any, ordinal: int, context: Any, capabilities: Any,
             close: Any, *rest: Any) -> None:
        before(self, driver, device, ordinal, context, capabilities, lambda: None, *rest)
        close()


@patch
def context_given_back_twice() -> None:
    """Closing a device releases the primary context twice."""
    @instead(CudaDevice, "close")
    def close(before: Any, self: Any) -> None:
        before(self)
        self._close_context()


@patch
def nothing_declared() -> None:
    """The device declares nothing."""
    @instead(backend, "capabilities_of")
    def capabilities_of(before: Any, *args: Any) -> Capabilities:
        return Capabilities()


def _declaring(**fields: Any) -> None:
    @instead(backend, "capabilities_of")
    def capabilities_of(before: Any, *args: Any) -> Capabilities:
        return dataclasses.replace(before(*args), **fields)


@patch
def more_pending_declared() -> None:
    """The declared number of operations behind an unmet wait is too high."""
    _declaring(max_pending=5000)


@patch
def never_blocks_declared() -> None:
    """Appends are declared never to block."""
    _declaring(append_never_blocks=True, max_pending=None)


@patch
def capabilities_change() -> None:
    """The capabilities differ from one driver of the device to the next."""
    made = []

    @instead(backend, "capabilities_of")
    def capabilities_of(before: Any, *args: Any) -> Capabilities:
        made.append(1)
        return dataclasses.replace(before(*args), max_pending=1020 - len(made) % 7)


@patch
def dlpack_of_no_device() -> None:
    """The DLPack device has a negative number."""
    @instead(CudaDevice, "dlpack_device")
    def dlpack_device(before: Any, self: Any) -> tuple[int, int]:
        return (2, -1)


@patch
def uuid_made_up() -> None:
    """The UUID changes each time."""
    @instead(backend, "_device_uuid")
    def device_uuid(before: Any, *args: Any) -> uuid.UUID:
        return uuid.uuid4()


@patch
def uuid_of_zeros() -> None:
    """The UUID is zero."""
    @instead(backend, "_device_uuid")
    def device_uuid(before: Any, *args: Any) -> uuid.UUID:
        return uuid.UUID(int=0)


@patch
def index_from_one() -> None:
    """Devices are counted from one."""
    @instead(CudaBackend, "_info")
    def info(before: Any, self: Any, driver: Any, device: Any, index: int) -> Any:
        return dataclasses.replace(before(self, driver, device, index), id=f"cuda:{index + 1}")


@patch
def details_raise() -> None:
    """The backend raises when it is asked for details."""
    @instead(CudaBackend, "details")
    def details(before: Any, self: Any, index: int) -> Any:
        raise KeyError("kernel_driver")


@patch
def check_without_a_remedy() -> None:
    """A failed check has no remedy."""
    @instead(CudaBackend, "checks")
    def checks(before: Any, self: Any) -> Any:
        return (*before(self), HealthCheck(name="device nodes", ok=False, detail="no access"))
