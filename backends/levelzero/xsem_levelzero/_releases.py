"""What is known of Intel's driver by its release: read in its source, not seen on a device (docs/levelzero.md).

Level Zero's driverVersion ends with the build number, which names the release: 33944 is 25.22's.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INTEL", "build_of", "flaw_of", "version_text"]

INTEL: Final = 0x8086
_OLDEST_BUILD: Final = 20000  # of 2021; whatever is below is not counted the way Intel's driver does

# First build that is free of it, and the flaw.
_FLAWS: Final = (
    (33276, "Intel's driver has the extension since 25.13"),
    (33944, "Intel's driver lists the extension and refuses every import on Linux until 25.22"),
    (34303, "Intel's driver 25.22 hands the kernel uninitialised flags with each signal; 25.27 is the first to trust"),
)


def build_of(vendor: int, driver_version: int) -> int | None:
    """The build number of Intel's driver; None for another's."""
    build = driver_version & 0xFFFF
    return build if vendor == INTEL and driver_version >> 24 and build >= _OLDEST_BUILD else None


def flaw_of(build: int | None) -> str | None:
    """Why semaphores of a driver of that build cannot be used; None where nothing is known against them."""
    if build is not None:
        for first_good, flaw in _FLAWS:
            if build < first_good:
                return f"{flaw}: this is build {build}; update it"
    return None


def version_text(driver_version: int) -> str:
    """As Intel's tools print it: 1.6.33944."""
    return f"{driver_version >> 24}.{driver_version >> 16 & 0xFF}.{driver_version & 0xFFFF}"
