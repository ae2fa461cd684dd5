"""Fixtures of the tests of the runtime."""

from support.fixtures import exporting, opened

__all__ = ["exporting", "opened"]
