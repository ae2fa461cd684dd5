"""What a device really does, asked requirement by requirement: the conformance suite of xsem."""

from __future__ import annotations

from xsem_conformance.requirements import Catalogue, Clause, Requirement, applies, handle_types, load

__all__ = ["Catalogue", "Clause", "Requirement", "applies", "handle_types", "load"]
