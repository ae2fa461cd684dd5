"""The conformance suite of xsem: it checks the behaviour of a device, one requirement after the other."""

from __future__ import annotations

from xsem_conformance.requirements import Catalogue, Clause, Requirement, applies, handle_types, load

__all__ = ["Catalogue", "Clause", "Requirement", "applies", "handle_types", "load"]
