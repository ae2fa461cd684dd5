"""NVIDIA's driver: its hardware queues, its room behind a wait, and the file that announces it to the loader."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from xsem.types import HealthCheck

__all__ = ["FULL", "MAX_PENDING", "NVIDIA", "PLATFORM", "connections", "nvidia_icd", "sentence", "setting"]

NVIDIA: Final = 0x10DE   # CL_DEVICE_VENDOR_ID

PLATFORM: Final = "NVIDIA CUDA"   # CL_PLATFORM_NAME

# Measured on an H200: behind an unmet wait, 1,020 fills or signals returned at once and the next one blocked its
# thread. Barriers never did.
MAX_PENDING: Final = 1020

# With as many waiting command queues as hardware queues, no other command queue runs. Measured on an H200: in a process
# with little other work, while 31 queues waited, another queue continued. With a second context it did not continue, so
# the number is that of CUDA's streams. The variable sets it for CUDA, whose driver is also that of OpenCL.
_VARIABLE: Final = "CUDA_DEVICE_MAX_CONNECTIONS"
FULL: Final = 8   # without the variable
_MOST: Final = 31   # with 32, 30 queues may wait; with 33, 31 (H200, 580.159.04: 1, 2, 8, 32 and 33 were tried)


@functools.cache
def setting() -> str | None:
    """Return the variable as it was at the first call, which comes before the first call of a driver."""
    return os.environ.get(_VARIABLE)


def connections(text: str | None) -> int:
    """Return the number of queues for a value of the variable."""
    # The driver takes its default for 0 and for text that is not a number.
    found = re.match(r"\s*[+-]?[0-9]+", text or "")
    number = int(found[0]) if found else 0
    return FULL if number == 0 else number if 0 < number < _MOST else _MOST


def sentence() -> str:
    """Return the number and its effect, for ``xsem doctor`` and for the causes of a timeout."""
    text = setting()
    number = connections(text)
    told = "is not set" if text is None else f"was {text!r} when xsem loaded OpenCL"
    waiting = "one waiting queue stops" if number == 1 else f"{number} waiting queues stop"
    return f"{number} ({_VARIABLE} {told}): {waiting} all other work of this process on the device"


_LIBRARY: Final = "libnvidia-opencl.so.1"
_FOLDERS: Final = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib",
                   "/usr/local/nvidia/lib64", "/usr/lib/wsl/lib")


def nvidia_icd(vendors: Path | None = None, folders: Sequence[str | Path] | None = None) -> HealthCheck | None:
    """Return a failed check if NVIDIA's driver is installed but unknown to the loader, as in containers."""
    if not sys.platform.startswith("linux"):
        return None
    if vendors is None:
        vendors = Path(os.environ.get("OCL_ICD_VENDORS") or os.environ.get("OPENCL_VENDOR_PATH")
                       or "/etc/OpenCL/vendors")
    if folders is None:
        folders = [*(each for each in os.environ.get("LD_LIBRARY_PATH", "").split(":") if each), *_FOLDERS]
    library = next((Path(folder, _LIBRARY) for folder in folders if Path(folder, _LIBRARY).exists()), None)
    if library is None:
        return None
    files = sorted(vendors.glob("*.icd")) if vendors.is_dir() else [vendors]
    for file in files:
        try:
            if "libnvidia-opencl" in file.read_text(encoding="utf-8", errors="replace"):
                return None
        except OSError:
            continue
    return HealthCheck(name="NVIDIA's OpenCL driver", ok=False,
                       detail=f"{library} is there, and no file in {vendors} names it: the loader does not find it",
                       remedy=f"mkdir -p {vendors} && echo {_LIBRARY} > {vendors}/nvidia.icd")
