"""Plugins for programs that a test starts: a folder with a module and its entry point, for PYTHONPATH."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["NOTHING", "clean_environment", "write_plugin"]

# A minimal backend with one device that declares nothing.
NOTHING = """
from xsem import spi
from xsem.types import Capabilities, DeviceInfo

class List(spi.QueueDriver):
    identity = 1
    def append_barrier(self, wait_fences, want_fence): return 1
    def close(self): pass

class Driver(spi.DeviceDriver):
    capabilities = Capabilities()
    def create_queue(self): return List()
    def query_fence(self, fence): return True
    def release_fence(self, fence): pass
    def close(self): pass

class Nothing(spi.Backend):
    name = "nothing"
    spi_version = 2
    def devices(self): return (DeviceInfo(id="nothing:0", backend="nothing", index=0, name="it can nothing"),)
    def open(self, index): return Driver()

@spi.hookimpl
def xsem_register_backends(register):
    register(Nothing())
"""


def write_plugin(folder: Path, name: str, code: str) -> Path:
    """Write a plugin of that name into `folder`. Return `folder`."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[xsem]\n{name} = {name}_plugin\n")
    (folder / f"{name}_plugin.py").write_text(code)
    return folder


def clean_environment(*path: Path) -> dict[str, str]:
    """Return this environment without settings of Python, pytest and xsem, and with PYTHONPATH."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYTEST", "XSEM"))}
    return kept | {"PYTHONPATH": os.pathsep.join(str(each) for each in path)}
