"""All mutants. Each is a way to run the suite on a device with one fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from faults import FAULTS
from patches import PATCHES

__all__ = ["FAMILIES", "PROFILES", "Mutant", "all_mutants"]

HERE = Path(__file__).resolve().parent
STAND_IN = HERE.parent / "drivers"
PROFILES = ("core", "timeline", "memory", "full")
FAMILIES = {
    "host": "the host device, with a fault around it",
    "backend": "the CUDA backend on the simulated driver, with a fault in its code",
}
HANGS = {
    **dict.fromkeys(("context_not_entered", "crashes", "not_ready_is_an_error"),
                    ("XSEM-EVT", "XSEM-IMP-001", "XSEM-ORD-005")),
    "query_takes_a_while": ("XSEM-EVT-005",),   # with the short patience, races decide most other requirements
}
"""Faults that have nearly every check hang until it is killed, or run late, and the beginnings of the ids of the
requirements that they are tried with."""


@dataclass(frozen=True)
class Mutant:
    """One fault, and how the suite is run on it.

    Attributes
    ----------
    family, fault : str
        What it is a variant of, and its fault. Together they are its name, `host/wait_ignored`.
    text : str
        The fault in a sentence.
    device, profile : str
        Arguments of the suite.
    undeclared : bool
        It declares nothing, so no case can fail and the profile must. It runs with all requirements.
    """

    family: str
    fault: str
    text: str
    device: str
    profile: str
    environment: Mapping[str, str] = field(default_factory=dict)
    undeclared: bool = False

    @property
    def name(self) -> str:
        """Return family and fault."""
        return f"{self.family}/{self.fault}"

    @property
    def all_of_it(self) -> tuple[str, ...]:
        """Prefixes of the ids of its requirements; none means all requirements."""
        return HANGS.get(self.fault, ())

    @property
    def on_stand_in(self) -> bool:
        """Whether it needs the simulated driver."""
        return self.family != "host"


def all_mutants() -> dict[str, Mutant]:
    """Return every mutant by its name, and one without a fault in each family."""
    found = [
        *_of("host", "host", "memory"),
        *(Mutant("backend", name, (plant.__doc__ or "").strip(), "cuda:0", "full", {"XSEM_MUTANT": f"{name} in cuda"})
          for name, plant in PATCHES.items() if name != "nothing_declared"),
        *_undeclared("backend", "cuda:0", "The device declares nothing.", "nothing_declared in cuda"),
    ]
    return {each.name: each for each in found}


def _of(family: str, backend: str, profile: str) -> list[Mutant]:
    made = []
    for name, fault in FAULTS.items():
        if name == "nothing_declared":
            made += _undeclared(family, "mutant:0", fault.text, f"{name} of {backend}")
        else:
            made.append(Mutant(family, name, fault.text, "mutant:0", profile, {"XSEM_MUTANT": f"{name} of {backend}"}))
    return made


def _undeclared(family: str, device: str, text: str, mutant: str) -> list[Mutant]:
    return [Mutant(family, f"nothing_declared_{profile}", text, device, profile, {"XSEM_MUTANT": mutant}, True)
            for profile in PROFILES]
