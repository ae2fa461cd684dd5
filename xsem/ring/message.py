"""What a ring is, as the payload of the message with its descriptors."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, Self, TypeAlias

from xsem.data.images import MipmapDesc
from xsem.data.layout import parse_dtype, parse_layout
from xsem.data.params import check_int
from xsem.errors import BadArgumentError, XsemError

__all__ = ["MOST_CONSUMERS", "MOST_IMAGES", "MOST_SLOTS", "Policy", "Shape"]

Policy: TypeAlias = Literal["fifo", "mailbox"]

MOST_SLOTS: Final = 1024
MOST_IMAGES: Final = 32   # a message has the descriptor of each
MOST_CONSUMERS: Final = 64
_MOST_PAYLOAD: Final = 65_536
_ALIGNED: Final = 256   # each slot begins at a multiple, as textures and vector loads of GPUs need it
_KIND: Final = "xsem ring 1"


@dataclass(frozen=True)
class Shape:
    """The fixed properties of a ring."""

    policy: Policy
    slots: int
    consumers: int
    shape: tuple[int, ...]
    dtype: str
    payload_bytes: int
    planes: bool = False   # a frame is a picture with a plane of luma and one of chroma
    image: MipmapDesc | None = None   # a frame is an image, in a memory of its own; then `shape` is empty

    def __post_init__(self) -> None:
        if not isinstance(self.policy, str) or self.policy not in ("fifo", "mailbox"):
            raise BadArgumentError(f"policy is 'fifo' or 'mailbox', not {self.policy!r}", reason="bad_policy")
        check_int("slots", self.slots, 2, MOST_SLOTS if self.image is None else MOST_IMAGES, reason="bad_slots")
        check_int("consumers", self.consumers, 1, MOST_CONSUMERS, reason="bad_consumers")
        check_int("payload_bytes", self.payload_bytes, 0, _MOST_PAYLOAD, reason="payload_too_long")
        if self.image is None and self.frame_bytes == 0:
            raise BadArgumentError(f"a frame of shape {self.shape} has no bytes", reason="bad_shape")
        if self.planes and (len(self.shape) != 2 or self.shape[0] % 3 or self.shape[1] % 2):
            raise BadArgumentError(f"a picture has no shape {self.shape}", reason="bad_shape")

    @property
    def memories(self) -> int:
        """How many memories the slots have."""
        return 1 if self.image is None else self.slots

    @property
    def frame_bytes(self) -> int:
        """The bytes of a frame."""
        return parse_layout(self.shape, None, parse_dtype(self.dtype).itemsize).extent

    @property
    def stride(self) -> int:
        """Bytes from one slot to the next."""
        return -(-self.frame_bytes // _ALIGNED) * _ALIGNED

    def encode(self) -> bytes:
        """Return the payload of the message."""
        return json.dumps({"kind": _KIND, **asdict(self)}).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Return what `encode` has encoded (BadArgumentError ``bad_ring``)."""
        try:
            fields: Any = json.loads(payload)
            if fields.pop("kind") != _KIND:
                raise ValueError("another kind or version")
            if fields["image"] is not None:
                fields["image"] = MipmapDesc(**{**fields["image"], "extent": tuple(fields["image"]["extent"])})
            return cls(**{**fields, "shape": tuple(fields["shape"])})
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, XsemError) as error:
            raise BadArgumentError(f"the message is not one of FrameRing.export, whole and unchanged: {error}",
                                   reason="bad_ring") from error
