"""xsem on PoCL as it is, which imports nothing, and on the simulated OpenCL device, with the host device as exporter.

    @on_pocl                                     # the CPU device, none of the extensions
    @on_pocl(POCL_DEVICES="pthread pthread")     # two of them; one process for all tests of the module with it
    @on_opencl                                   # of opencl_sim: PoCL made to look like a GPU that imports
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, overload

import pytest
from stand_in import run_there

import xsem
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreHandleType

__all__ = [
    "BINARY", "BOUND_S", "MEMORY", "PAGE", "Pair", "driver_of", "fd_of", "list_of", "on_pocl", "opened",
    "pocl_environment", "soon",
]

BINARY = SemaphoreHandleType.OPAQUE_FD
MEMORY = MemoryHandleType.OPAQUE_FD
PAGE = 4096
BOUND_S = 20.0

F = TypeVar("F", bound=Callable[..., Any])


def _pocl_missing() -> str | None:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "PoCL's package is for Linux on x86-64"
    for name in ("pyopencl", "pocl_binary_distribution"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    return None


def _own_drivers_only() -> dict[str, str]:
    """Without the settings of whoever runs the tests, and without the drivers of this machine."""
    others = {name: value for name, value in os.environ.items()
              if not name.startswith(("SIMCL_", "OPENCL_", "OCL_ICD_", "POCL_"))}
    found = importlib.util.find_spec("pyopencl")
    assert found is not None
    assert found.submodule_search_locations is not None
    # PoCL's package puts its library beside pyopencl's own loader, with a file that names it.
    return {**others, "OCL_ICD_VENDORS": str(Path(found.submodule_search_locations[0]) / ".libs" / "pocl.icd")}


def pocl_environment(**more: str) -> dict[str, str]:
    """For a process that sees PoCL alone. Skips the test where it cannot be had, which CI takes for a failure."""
    missing = _pocl_missing()
    if missing is not None:
        pytest.skip(missing)
    return {**_own_drivers_only(), **more}


def _pocl(settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    return [], pocl_environment(**settings)


@overload
def on_pocl(test: F, /) -> F: ...
@overload
def on_pocl(**environment: str) -> Callable[[F], F]: ...
def on_pocl(test: Any = None, /, **environment: str) -> Any:
    """Run the test on PoCL, in an environment."""
    decorate = run_there("pocl", _pocl, environment)
    return decorate if test is None else decorate(test)


class Pair:
    """The exporter, and the device on which everything is imported."""

    def __init__(self, host: xsem.Device, here: xsem.Device) -> None:
        self.host = host
        self.here = here

    def semaphore(self) -> tuple[xsem.Semaphore, xsem.Semaphore]:
        there = self.host.create_semaphore(BINARY)
        with there.export(for_device=self.here) as desc:
            return there, self.here.import_semaphore(desc)

    def memory(self, size: int = PAGE) -> tuple[xsem.Memory, xsem.Memory]:
        there = self.host.create_memory(MEMORY, size)
        with there.export(for_device=self.here) as desc:
            return there, self.here.import_memory(desc)


@contextmanager
def opened(device: str = "opencl:0", *, native: object | None = None) -> Iterator[Pair]:
    with xsem.open_device("host") as host:
        with xsem.open_device(device, native=native) as here:
            yield Pair(host, here)
        # A device is closed on a thread of xsem's; the process may end before that.
        soon(lambda: here._record.freed)


def driver_of(device: xsem.Device) -> Any:
    """The backend's half of a device."""
    return device._session.driver


def list_of(commands: xsem.CommandList) -> Any:
    """The backend's half of a list."""
    return commands._book.driver


def fd_of(there: xsem.Semaphore | xsem.Memory) -> OwnedHandle:
    """A new fd of an exporter's object."""
    handle = there.export().handle
    assert isinstance(handle, OwnedHandle)
    return handle


def soon(reached: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND_S
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.002)
