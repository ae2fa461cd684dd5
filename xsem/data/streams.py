"""Streams and queues of other libraries, for `Device.command_list`."""

from __future__ import annotations

from typing import Final, Protocol, TypeAlias

from xsem.data.params import UINT64_MAX
from xsem.errors import BadArgumentError

__all__ = [
    "Stream",
    "SupportsCudaStream",
    "SupportsIntPtr",
    "SupportsSyclAddress",
    "SupportsSyclQueue",
    "check_stream",
]


class SupportsCudaStream(Protocol):
    """Stream of torch, CuPy, cuda.core, Numba or Warp.

    The method returns the protocol version and the native handle. (0, 0) is the default stream.
    """

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the stream.

        Returns
        -------
        tuple of (int, int)
            Version of the protocol, and the native handle.
        """


class SupportsIntPtr(Protocol):
    """Object of pyopencl. The property `int_ptr` is the native handle."""

    @property
    def int_ptr(self) -> int: ...


class SupportsSyclQueue(Protocol):
    """``torch.xpu.Stream``. The property `sycl_queue` is the address of a ``sycl::queue``."""

    @property
    def sycl_queue(self) -> int: ...


class SupportsSyclAddress(Protocol):
    """``dpctl.SyclQueue``. The method returns the address of a ``sycl::queue``."""

    def addressof_ref(self) -> int:
        """Return the queue.

        Returns
        -------
        int
            Address of a ``sycl::queue``.
        """


Stream: TypeAlias = SupportsCudaStream | SupportsIntPtr | SupportsSyclQueue | SupportsSyclAddress | int
"""A stream object, or a native handle as an int. xsem refuses the int 0."""

_ATTRIBUTES: Final = ("__cuda_stream__", "int_ptr", "sycl_queue", "addressof_ref")


def check_stream(stream: object) -> None:
    """Refuse an object that is not a stream on any device."""
    if isinstance(stream, int):
        if isinstance(stream, bool) or not 0 <= stream <= UINT64_MAX:
            raise BadArgumentError(f"{stream!r} is not a native stream handle", reason="not_a_stream")
        if stream == 0:   # some libraries use it for "no stream", others for "the default stream"
            raise BadArgumentError(
                "the int 0 is not a stream: pass the stream object itself (its 0 is the default stream), or a handle",
                reason="null_stream",
            )
    elif not (hasattr(stream, "__cuda_stream__") or any(hasattr(stream, each) for each in _ATTRIBUTES)):
        raise BadArgumentError(
            f"a stream has {', '.join(_ATTRIBUTES[:-1])} or {_ATTRIBUTES[-1]}, or is a native handle; "
            f"{type(stream).__name__} has none of these", reason="not_a_stream",
        )
