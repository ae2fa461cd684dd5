"""A ring of frames between processes, built from the public objects of xsem: memory, timelines and command lists."""

from xsem.ring.consumer import FrameReader
from xsem.ring.frames import Frame
from xsem.ring.pictures import P010, Nv12
from xsem.ring.producer import FrameRing

__all__ = ["P010", "Frame", "FrameReader", "FrameRing", "Nv12"]
