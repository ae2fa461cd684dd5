"""Fixtures of the tests on a real GPU."""

from support.gpu import rig

__all__ = ["rig"]
