"""Fixtures of the tests of the facade."""

import sys

from support.bad_input import counted
from support.fixtures import device, exporting, opened
from support.real_bytes import gpu, gpu_or_host

__all__ = ["counted", "device", "exporting", "gpu", "gpu_or_host", "opened"]

# Not a skip: on Windows, these files cannot be imported. Their subjects are kinds of file descriptors, and the file
# descriptors and mappings that Ctrl-C loses.
collect_ignore = ["test_bad_input_files.py", "test_interrupts.py"] if sys.platform == "win32" else []
