"""Tokens of the backend, and the refusal of what a backend does not implement."""

from __future__ import annotations

from typing import Any, NoReturn, TypeAlias

from xsem.errors import UnsupportedError

__all__ = ["Token", "unsupported"]

Token: TypeAlias = Any
"""A value of the backend's choice that stands for one object. The facade never reads its content."""


def unsupported(driver: object, method: str) -> NoReturn:
    """Refuse a method that the driver does not override."""
    raise UnsupportedError(f"{type(driver).__name__} does not implement {method}", capability=method)
