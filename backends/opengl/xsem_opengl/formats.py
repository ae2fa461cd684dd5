"""The formats of images."""

from __future__ import annotations

from typing import Final

__all__ = ["CHANNELS", "FORMATS", "KINDS"]

KINDS: Final = {   # of a component: OpenGL's type, the end of the internal format, and whether it is an integer
    "uint8": ("GL_UNSIGNED_BYTE", "8UI", True), "int8": ("GL_BYTE", "8I", True),
    "uint16": ("GL_UNSIGNED_SHORT", "16UI", True), "int16": ("GL_SHORT", "16I", True),
    "uint32": ("GL_UNSIGNED_INT", "32UI", True), "int32": ("GL_INT", "32I", True),
    "float16": ("GL_HALF_FLOAT", "16F", False), "float32": ("GL_FLOAT", "32F", False),
    "unorm8": ("GL_UNSIGNED_BYTE", "8", False), "unorm16": ("GL_UNSIGNED_SHORT", "16", False),
    "snorm8": ("GL_BYTE", "8_SNORM", False), "snorm16": ("GL_SHORT", "16_SNORM", False),
}
FORMATS: Final = frozenset(KINDS)
CHANNELS: Final = {1: ("R", "RED"), 2: ("RG", "RG"), 4: ("RGBA", "RGBA")}
