"""Borrowed streams: their handles, and the check of their device and context."""

from __future__ import annotations

import threading
from typing import Any, Final

from xsem.errors import BadArgumentError, WrongDeviceError
from xsem_cuda.context import Context
from xsem_cuda.results import call

__all__ = [
    "DEFAULTS",
    "LEGACY",
    "PER_THREAD",
    "check_ordinal",
    "check_stream_device",
    "parse_stream",
    "per_thread_identity",
]

LEGACY: Final = 1
"""CU_STREAM_LEGACY. With CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM=1, the bindings read 0 as per-thread."""
PER_THREAD: Final = 2
"""CU_STREAM_PER_THREAD: a different stream in each thread."""
DEFAULTS: Final = (LEGACY, PER_THREAD)


def parse_stream(stream: object) -> int:
    """Return the handle of a borrowed stream. The owner keeps the stream."""
    if isinstance(stream, int) and not isinstance(stream, bool):
        if stream == 0:
            raise BadArgumentError(
                "the int 0 is not a stream: pass the stream object, or 1 for the legacy default stream",
                reason="null_stream")
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # The protocol defines a method. In the first cuda.core releases, the attribute was a property.
        try:
            version, handle = protocol() if callable(protocol) else protocol
            if type(version) is not int or type(handle) is not int:
                version, handle = int(version), int(handle)
        except (TypeError, ValueError) as error:
            raise BadArgumentError(
                f"{type(stream).__name__}.__cuda_stream__ does not return a version and a handle: {error}",
                reason="not_a_stream") from error
        if version != 0:
            raise BadArgumentError(
                f"{type(stream).__name__} has version {version} of __cuda_stream__; xsem supports version 0",
                reason="stream_protocol")
    elif isinstance(getattr(stream, "cuda_stream", None), int):  # torch before the protocol
        handle = stream.cuda_stream  # type: ignore[attr-defined]
    elif isinstance(getattr(stream, "ptr", None), int):  # CuPy before the protocol
        handle = stream.ptr  # type: ignore[attr-defined]
    else:
        raise BadArgumentError(
            f"{type(stream).__name__} is not a CUDA stream: pass an object with __cuda_stream__, or a CUstream as an "
            "int", reason="not_a_stream")
    return handle or LEGACY


def _ordinal(stream: object) -> int | None:
    for attribute in ("device_index", "device_id"):  # torch, CuPy; -1 if unknown
        value = getattr(stream, attribute, None)
        if isinstance(value, int) and value >= 0:
            return value
    return None


def check_ordinal(ordinal: int, stream: object) -> None:
    """Refuse a stream if its object names the ordinal of another device."""
    streams = _ordinal(stream)
    if streams is not None and streams != ordinal:
        raise WrongDeviceError(f"the stream belongs to cuda:{streams}, this device is cuda:{ordinal}",
                               expected=f"cuda:{ordinal}", actual=f"cuda:{streams}", reason="wrong_device")


def check_stream_device(driver: Any, context: Context, ordinal: int, handle: int) -> None:
    """Refuse the stream of another device or context. `check_ordinal` precedes this check."""
    here = f"cuda:{ordinal}"
    if handle in DEFAULTS:
        return  # these two belong to the current context, and each append makes the device's context current
    owner = call(driver.cuStreamGetCtx, driver.CUstream(handle))
    if int(owner) == context.address:
        return
    with Context(driver, owner):
        actual = f"cuda:{int(call(driver.cuCtxGetDevice))}"
    if actual != here:
        raise WrongDeviceError(f"the stream belongs to {actual}, this device is {here}", expected=here, actual=actual,
                               reason="wrong_device")
    raise WrongDeviceError(
        f"the stream belongs to another context of {here}: open the device on that context, with native=",
        expected=f"context {context.address:#x}",
        actual=f"context {int(owner):#x}", reason="wrong_context",
        likely_causes=("the library of the stream uses its own context",),
    )


def per_thread_identity() -> tuple[int, object]:
    """Return the identity of the calling thread's default stream: its handle, and an object of the thread."""
    return (PER_THREAD, _THREAD.itself)


class _Thread(threading.local):
    """One object per thread. A later thread can have the number of an ended thread, but not its object."""

    def __init__(self) -> None:
        self.itself = object()


_THREAD: Final = _Thread()
