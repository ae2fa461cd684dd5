"""Fixtures of the tests of the facade."""

import sys

from support.bad_input import counted
from support.fixtures import device, exporting, opened
from support.real_bytes import gpu, gpu_or_host

__all__ = ["counted", "device", "exporting", "gpu", "gpu_or_host", "opened"]

# The subject of these files is kinds of file descriptors. Not a skip: on Windows, they cannot be imported.
collect_ignore = ["test_bad_input_files.py"] if sys.platform == "win32" else []
