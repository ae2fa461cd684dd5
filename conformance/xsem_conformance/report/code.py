"""Which code a verdict is of: a digest of the backend's files, so that a report can be told from an older code's."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from xsem import spi
from xsem.plugins import ENTRY_POINT_GROUP

__all__ = ["digest", "of"]


def of(backend: spi.Backend) -> dict[str, str] | None:
    """What a report tells of a backend's code: its plugin's module, and the `digest`; None where it has no files."""
    module = _plugin(type(backend).__module__)
    try:
        found = importlib.util.find_spec(module)
    except ValueError:   # a module that a program made, of no file
        return None
    if found is None:
        return None
    places = list(found.submodule_search_locations or filter(None, [found.origin]))
    if len(places) != 1 or not Path(places[0]).exists():   # a namespace, or nothing that lies in a folder
        return None
    try:
        return {"package": module, "sha256": digest(Path(places[0]))}
    except OSError:   # some file may not be read; the device has to be tried all the same
        return None


def digest(package: Path) -> str:
    """SHA-256 over names and contents of a backend's files.

    The same for a package in a clone and as a wheel installs it: caches do not count, nor does how lines end.

    Parameters
    ----------
    package : Path
        The folder of the package, or the file of a module.
    """
    sha = hashlib.sha256()
    for name, path in sorted(_files(package)):
        data = path.read_bytes().replace(b"\r\n", b"\n")
        # With sizes: no two sets of files read the same.
        sha.update(f"{len(name.encode())} {len(data)} {name}".encode() + data)
    return sha.hexdigest()


def _files(package: Path) -> Iterator[tuple[str, Path]]:
    if package.is_file():
        yield package.name, package
        return
    for path in package.rglob("*"):
        inside = path.relative_to(package)
        if path.is_file() and not any(part == "__pycache__" or part.startswith(".") for part in inside.parts):
            yield inside.as_posix(), path


def _plugin(module: str) -> str:
    """The entry point's module that a module belongs to; without one, its package."""
    plugins = [each.module for each in metadata.entry_points(group=ENTRY_POINT_GROUP)]
    mine = [each for each in plugins if module == each or module.startswith(f"{each}.")]
    return max(mine, key=len, default=module.partition(".")[0])
