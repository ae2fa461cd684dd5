"""Pictures of two planes, as video encoders and decoders use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from xsem.data.params import check_int
from xsem.errors import BadArgumentError

__all__ = ["P010", "Nv12", "Picture", "planes"]

_LONGEST: Final = 65_536


@dataclass(frozen=True)
class Picture:
    """A picture with a plane of luma, and a plane of chroma with half its width and height.

    Attributes
    ----------
    width : int
        Elements of luma in a row, even, from 2.
    height : int
        Rows of luma, even, from 2.
    """

    dtype: ClassVar[str]
    width: int
    height: int

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            length = getattr(self, name)
            check_int(name, length, 2, _LONGEST, reason="bad_shape")
            if length % 2:
                raise BadArgumentError(f"{name} is even, because two elements share one of chroma, not {length}",
                                       reason="bad_shape")

    @property
    def shape(self) -> tuple[int, int]:
        """The picture as one array: the rows of luma, then those of chroma."""
        return self.height * 3 // 2, self.width


class Nv12(Picture):
    """A picture of 8 bits: the shape of the frames of a ring.

    Parameters
    ----------
    width : int
        Elements of luma in a row, even, from 2.
    height : int
        Rows of luma, even, from 2.

    Raises
    ------
    BadArgumentError
        ``bad_shape``; ``not_an_int``.

    Examples
    --------
    >>> import xsem
    >>> with (xsem.open_device("host") as device,
    ...       xsem.FrameRing.create(device, shape=xsem.Nv12(64, 32)) as ring, ring.write() as frame):
    ...     [plane.shape for plane in frame.planes]
    [(32, 64, 1), (16, 32, 2)]
    """

    dtype: ClassVar[str] = "uint8"


class P010(Picture):
    """A picture of 10 bits, each in the upper bits of 16. Its parameters and errors are those of `Nv12`."""

    dtype: ClassVar[str] = "uint16"


def planes(shape: tuple[int, ...]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Return the shapes of luma, and of chroma with both components of an element, in a picture of this shape."""
    rows, width = shape
    return (rows * 2 // 3, width, 1), (rows // 3, width // 2, 2)
