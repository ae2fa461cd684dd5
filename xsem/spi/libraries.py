"""The files of loaded libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["loaded_library"]

_MAPS: Final = "/proc/self/maps"


def loaded_library(name: str) -> Path | str:
    """Find the file of a library that this process has loaded, for `Backend.libraries`.

    Parameters
    ----------
    name : str
        File name of the library, for example ``"libacme.so.1"``. The version in the name may be absent, or differ from
        the version of the file: a link named ``libacme.so.1`` loads ``libacme.so.1.4.2``.

    Returns
    -------
    Path or str
        The file. `name` itself if the process has not loaded such a file, and on other systems than Linux.

    Examples
    --------
    >>> loaded_library("libc.so.6").name  # doctest: +SKIP
    'libc.so.6'
    """
    stem = f"{Path(name).name.partition('.so')[0]}.so"
    try:
        lines = Path(_MAPS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return name
    # The fields before the file are address, permissions, offset, device and inode.
    files = (Path(fields[5]) for line in lines if len(fields := line.split(maxsplit=5)) == 6)
    return next((file for file in files if file.name == stem or file.name.startswith(f"{stem}.")), name)
