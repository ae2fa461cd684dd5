"""Fixtures of the tests of the facade."""

from support.bad_input import counted
from support.fixtures import device, exporting, opened
from support.real_bytes import gpu, gpu_or_host

__all__ = ["counted", "device", "exporting", "gpu", "gpu_or_host", "opened"]
