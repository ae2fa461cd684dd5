"""Known flaws of Intel's driver by release, from its source code and not from a device (docs/levelzero.md).

Level Zero's driverVersion ends with the build number, which identifies the release: 33944 is 25.22.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "INTEL", "build_of", "flaw_of", "has_host_functions", "is_late", "limit_of", "never_blocks", "signal_blocks",
    "version_text",
]

INTEL: Final = 0x8086
_OLDEST_BUILD: Final = 20000  # of 2021; smaller numbers do not follow the numbering of Intel's driver

# The first build without the flaw, and the flaw.
_FLAWS: Final = (
    (33276, "Intel's driver has the extension since 25.13"),
    (33944, "Intel's driver before 25.22 lists the extension and refuses every import on Linux"),
    (34303, "Intel's driver 25.22 hands the kernel uninitialised flags with each signal; use 25.27 or newer"),
)

_FRAME_LOOPS: Final = 38646  # 26.22
_FREES_HANDLES: Final = 37020  # 26.05
_HOST_FUNCTIONS: Final = 39758  # 26.35


def build_of(vendor: int, driver_version: int) -> int | None:
    """The build number of Intel's driver; None for another vendor's driver."""
    build = driver_version & 0xFFFF
    return build if vendor == INTEL and driver_version >> 24 and build >= _OLDEST_BUILD else None


def flaw_of(build: int | None) -> str | None:
    """The reason why semaphores of a driver build are unusable; None if no flaw is known."""
    if build is not None:
        for first_good, flaw in _FLAWS:
            if build < first_good:
                return f"{flaw}: this is build {build}; update it"
    return None


def signal_blocks(build: int | None) -> bool:
    """Whether a signal behind an unmet wait blocks the driver for ever, in all lists of the process."""
    return build is not None and build < _FRAME_LOOPS


def limit_of(build: int | None) -> str:
    """The limit of a driver build whose semaphores work otherwise, or an empty text."""
    if build is None or build > _FRAME_LOOPS:
        return ""
    limits = ["a signal behind an unmet wait is refused (signal_behind_wait): a frame loop needs driver 26.22"
              ] if signal_blocks(build) else []
    limits.append("the driver keeps an event of each appended wait and signal" + (
        " and a syncobj of each wait" if build < _FREES_HANDLES else "") + " until the process ends, up to 26.22")
    return "; ".join(limits)


def has_host_functions(build: int | None) -> bool:
    """Whether waits and signals are host functions of the engines, on Linux."""
    return build is not None and build >= _HOST_FUNCTIONS


def is_late(build: int | None, vendor: int, *, resets: bool) -> bool:
    """Whether an import supports one wait, and a signal comes after its event. `resets`: the probe saw a reset."""
    # Intel's driver for Linux without host functions. None of its releases resets a semaphore in a wait.
    return vendor == INTEL and not resets and not has_host_functions(build)


def never_blocks(build: int | None) -> bool:
    """Whether appends and releases never block."""
    # On Intel's driver, an append may wait for a thread of the driver, and whether its functions for freeing block has
    # not been observed.
    return build is None


def version_text(driver_version: int) -> str:
    """The version in the form of Intel's tools, for example 1.6.33944."""
    return f"{driver_version >> 24}.{driver_version >> 16 & 0xFF}.{driver_version & 0xFFFF}"
