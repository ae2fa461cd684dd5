"""Checks of ``xsem doctor`` for the files that announce OpenCL drivers to the loader."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from xsem.types import HealthCheck

__all__ = ["nvidia_icd"]

_NVIDIA: Final = "libnvidia-opencl.so.1"
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
    library = next((Path(folder, _NVIDIA) for folder in folders if Path(folder, _NVIDIA).exists()), None)
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
                       remedy=f"mkdir -p {vendors} && echo {_NVIDIA} > {vendors}/nvidia.icd")
