"""What a file descriptor is, as far as the contract of docs/host-objects.md lets one see it."""

from __future__ import annotations

import os

from xsem.errors import BadHandleError
from xsem_host.linux import SEALS, has_huge_pages, seals

__all__ = ["check_sealed_memfd", "file_name"]


def file_name(fd: int) -> str:
    """What the kernel calls the file.

    Raises
    ------
    BadHandleError
        ``no_proc``.
    """
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError as error:
        raise BadHandleError(f"what fd {fd} is cannot be seen: /proc is not there ({error.strerror})",
                             reason="no_proc") from error


def check_sealed_memfd(fd: int, what: str, size: int) -> None:
    """Refuse what is not a memfd of at least `size` bytes that nobody can shrink.

    Raises
    ------
    BadHandleError
        ``not_a_memfd``, ``unsealed``, ``short_page``.
    """
    present = seals(fd)
    if present is None:
        raise BadHandleError(f"{what} of host is a sealed memfd, and this file is none", reason="not_a_memfd")
    if has_huge_pages(fd):
        # A hole punched into it is filled from a pool that may be empty: SIGBUS, whatever the seals.
        raise BadHandleError(f"{what} of host is a memfd of ordinary pages, not of MFD_HUGETLB's", reason="not_a_memfd")
    if present & SEALS != SEALS:
        raise BadHandleError(f"the {what}'s memfd is not sealed against shrinking: its owner could kill this process",
                             reason="unsealed")
    if os.fstat(fd).st_size < size:
        raise BadHandleError(f"the {what}'s memfd has {os.fstat(fd).st_size} bytes, fewer than {size}",
                             reason="short_page")
