"""The type of a backend's tokens."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Token"]

Token: TypeAlias = Any
"""A value of the backend's choice that stands for one object. The facade never reads its content."""
