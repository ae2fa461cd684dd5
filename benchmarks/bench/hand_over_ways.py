"""The names of the ways of a hand-over, in the records and for the pictures."""

from __future__ import annotations

from typing import Final

__all__ = ["BY_HAND", "EXTERNAL", "FLAGS", "IPC_EVENTS", "XSEM"]

XSEM: Final = "xsem: timeline in host memory"
BY_HAND: Final = "by hand: word in host memory"
EXTERNAL: Final = "xsem: timeline of the exporter, imported by both"
IPC_EVENTS: Final = "by hand: CUDA IPC events, words polled by hosts"
FLAGS: Final = "by hand: hosts synchronise, and poll words"
