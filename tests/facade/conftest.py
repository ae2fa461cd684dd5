"""Fixtures of the tests of the facade."""

from support.fixtures import device, exporting, opened

__all__ = ["device", "exporting", "opened"]
