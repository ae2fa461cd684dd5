"""How many faults each requirement finds: `strength.toml`, which `tools/suite_data.py` writes."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

__all__ = ["Strength", "load"]


@dataclass(frozen=True)
class Strength:
    """The faults that one requirement finds.

    Attributes
    ----------
    planted : int
        Drivers with one fault each, under which the requirement fails.
    alone : int
        Those of them under which no other requirement fails.
    composed : int
        Faults composed from the driver interface that the requirement found first. A run stops at the first finder, so
        other requirements may find them as well.
    """

    planted: int = 0
    alone: int = 0
    composed: int = 0

    @property
    def words(self) -> str:
        """What the requirement finds."""
        if not self.planted and not self.composed:
            return "of the faults that test the suite, it finds none"
        return (f"of the faults that test the suite, it finds {self.planted} (planted), {self.alone} of which nothing "
                f"else finds, and is the first to find {self.composed} more (composed)")


@functools.cache
def load() -> Mapping[str, Strength]:
    """Return the strength of each requirement that finds a fault, by its id."""
    text = (resources.files("xsem_conformance") / "strength.toml").read_text(encoding="utf-8")
    return {name: Strength(**fields) for name, fields in tomllib.loads(text).items()}
