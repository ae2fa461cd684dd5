"""Fixtures of the tests of the command line."""

from support.fixtures import device

__all__ = ["device"]
