"""Streams and queues of other libraries, for `Device.command_list`."""

from __future__ import annotations

from typing import Protocol, TypeAlias

from xsem.data.params import UINT64_MAX
from xsem.errors import BadArgumentError

__all__ = ["Stream", "SupportsCudaStream", "SupportsIntPtr", "check_stream"]


class SupportsCudaStream(Protocol):
    """Stream of torch, CuPy, cuda.core, Numba or Warp.

    The method returns the protocol version and the native handle. (0, 0) is the default stream.
    """

    def __cuda_stream__(self) -> tuple[int, int]: ...


class SupportsIntPtr(Protocol):
    """Object of pyopencl. The property `int_ptr` is the native handle."""

    @property
    def int_ptr(self) -> int: ...


Stream: TypeAlias = SupportsCudaStream | SupportsIntPtr | int
"""A stream object, or a native handle as an int. xsem refuses the int 0."""


def check_stream(stream: object) -> None:
    """Refuse an object that is not a stream on any device.

    Raises
    ------
    BadArgumentError
        ``not_a_stream``. ``null_stream``: some libraries use 0 for "no stream", others for "the default stream".
    """
    if isinstance(stream, int):
        if isinstance(stream, bool) or not 0 <= stream <= UINT64_MAX:
            raise BadArgumentError(f"{stream!r} is not a native stream handle", reason="not_a_stream")
        if stream == 0:
            raise BadArgumentError(
                "the int 0 is not a stream: pass the stream object itself (its 0 is the default stream), or a handle",
                reason="null_stream",
            )
    elif not hasattr(stream, "__cuda_stream__") and not hasattr(stream, "int_ptr"):
        raise BadArgumentError(
            f"a stream has __cuda_stream__ or int_ptr, or is a native handle; {type(stream).__name__} is neither",
            reason="not_a_stream",
        )
