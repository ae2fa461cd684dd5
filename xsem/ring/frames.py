"""A frame of a ring, for the time of its ``with`` block."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import perf_counter as now
from types import TracebackType
from typing import Any, Literal

from xsem.errors import BadArgumentError, ReleasedError, UnsupportedError
from xsem.facade.buffer import Buffer
from xsem.facade.image import MipmappedArray
from xsem.ipc.message import content
from xsem.ring.waiting import Steps, run, run_in_asyncio
from xsem.runtime.tracing import tracing

__all__ = ["Frame", "Turn"]


class Frame:
    """One frame, in a slot of a ring, until the end of its ``with`` block.

    A frame is an array: it has DLPack, the CUDA array interface and the array interface of NumPy, as far as its memory
    allows. A picture (`Nv12`, `P010`) is an array of its rows of luma and then of chroma, and has `planes`. A frame of
    a ring of images has an `image` instead. After the block, another frame may be in the slot, so arrays of the frame
    must not be used any more.

    Attributes
    ----------
    number : int
        Number of the frame: 1, 2, 3, …
    skipped : int
        How many frames the consumer did not get since its last one. Always 0 with the policy ``"fifo"``.
    payload : bytes
        The bytes that come with the frame. The producer may set them until the end of the block.

    Raises
    ------
    ReleasedError
        ``released``: the ``with`` block is over. Each method and array of the frame can raise it.
    UnsupportedError
        ``no_array``: the frame is an image; all except `image` and the three attributes above raise it. ``no_image``:
        the frame is an array; `image` raises it.
    ForkedError
        ``forked``: the device was opened before ``os.fork()``.
    """

    def __init__(
        self, content: Buffer | MipmappedArray, planes: tuple[Buffer, ...], number: int, skipped: int, payload: bytes,
        most_payload: int,
    ) -> None:
        self._content: Buffer | MipmappedArray | None = content
        self._planes = planes
        self._most_payload = most_payload
        self.number = number
        self.skipped = skipped
        self.payload = payload

    @property
    def buffer(self) -> Buffer:
        """The frame as a buffer of the device, for `CommandList.append_copy` and others."""
        found = self._held()
        if isinstance(found, MipmappedArray):
            raise UnsupportedError("the frames of this ring are images: use frame.image", capability="ring.array",
                                   reason="no_array")
        return found

    @property
    def image(self) -> MipmappedArray:
        """The frame of a ring of images, as an image of the device."""
        found = self._held()
        if not isinstance(found, MipmappedArray):
            raise UnsupportedError("the frames of this ring are arrays; for images, make it with shape=MipmapDesc(…)",
                                   capability="ring.image", reason="no_image")
        return found

    def _held(self) -> Buffer | MipmappedArray:
        if self._content is None:
            raise ReleasedError(f"frame {self.number} was given back at the end of its block", reason="released")
        return self._content

    @property
    def planes(self) -> tuple[Buffer, ...]:
        """The planes of a picture, as buffers of the device: luma and chroma. Another frame has itself as its plane."""
        self.buffer   # noqa: B018 - refuses a frame that was given back
        return self._planes

    def cuda(self) -> list[Buffer]:
        """Return the planes, in the form that PyNvVideoCodec documents for encoders on NVENC.

        Returns
        -------
        list of Buffer
            `planes`: each has the CUDA array interface.
        """
        return [*self.planes]

    @property
    def payload(self) -> bytes:
        """The bytes that come with the frame."""
        return self._payload

    @payload.setter
    def payload(self, payload: bytes) -> None:
        data = payload if type(payload) is bytes else content(payload)
        if len(data) > self._most_payload:
            raise BadArgumentError(f"the ring takes payloads of at most {self._most_payload} bytes, not {len(data)}",
                                   reason="payload_too_long")
        self._payload = data

    def numpy(self) -> Any:
        """Export the frame as a NumPy array over the same memory, as `Buffer.numpy` does.

        Returns
        -------
        numpy.ndarray
            The array, with the shape and the dtype of the ring.

        Raises
        ------
        UnsupportedError
            The memory is not that of the host.
        """
        return self.buffer.numpy()

    def __dlpack__(self, **arguments: Any) -> object:
        """Export the frame as a DLPack capsule, as `Buffer.__dlpack__` does.

        Parameters
        ----------
        **arguments
            Those of `Buffer.__dlpack__`.

        Returns
        -------
        PyCapsule
            The capsule.

        Raises
        ------
        BadArgumentError, UnsupportedError
            As for `Buffer.__dlpack__`.
        """
        return self.buffer.__dlpack__(**arguments)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the DLPack device of the frame, as `Buffer.__dlpack_device__` does.

        Returns
        -------
        tuple of int
            Type and number.
        """
        return self.buffer.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.buffer.__cuda_array_interface__

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.buffer.__array_interface__

    def _give_back(self) -> None:
        self._content = None

    def __repr__(self) -> str:
        return f"<Frame {self.number}{' given back' if self._content is None else ''}>"


class Turn:
    """The time of one frame, for ``with`` and ``async with``."""

    def __init__(
        self, name: Literal["read", "write"], ring: str, begin: Callable[[], Steps[Frame]],
        end: Callable[[Frame, bool], None], timeout_s: float | None,
    ) -> None:
        self._name = name
        self._ring = ring
        self._began = now()
        self._begin = begin
        self._end = end   # gets whether the block ended without an exception
        self._timeout_s = timeout_s
        self._frame: Frame | None = None

    def __enter__(self) -> Frame:
        self._frame = run(self._begin(), self._timeout_s)
        return self._frame

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        frame, self._frame = self._frame, None
        if frame is not None:
            frame._give_back()
            self._end(frame, error is None)
            if (note := tracing.note) is not None:
                note(("block", now(), threading.get_native_id(), "ring", self._name, self._began,
                      {"ring": self._ring, "number": frame.number, "skipped": frame.skipped}))

    async def __aenter__(self) -> Frame:
        self._frame = await run_in_asyncio(self._begin(), self._timeout_s)
        return self._frame

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)
