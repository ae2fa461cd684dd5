"""Identify the code behind a verdict by a digest of the backend's files, so that an outdated report is recognised."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from xsem import spi
from xsem.plugins import ENTRY_POINT_GROUP

__all__ = ["digest", "of"]


def of(backend: spi.Backend) -> dict[str, str] | None:
    """Return the module of a backend's plugin and its `digest` for the report; None if the module has no files."""
    module = _plugin(type(backend).__module__)
    try:
        found = importlib.util.find_spec(module)
    except ValueError:   # a module made by a program, without a file
        return None
    if found is None:
        return None
    places = list(found.submodule_search_locations or filter(None, [found.origin]))
    if len(places) != 1 or not Path(places[0]).exists():   # a namespace package, or a module outside a folder
        return None
    try:
        return {"package": module, "sha256": digest(Path(places[0]))}
    except OSError:   # a file may be unreadable; the run must continue
        return None


def digest(package: Path) -> str:
    """Return the SHA-256 over names and contents of a backend's files.

    It is equal for a package in a clone and for the installed wheel: caches, line endings and the compiled forms of
    Python files do not count.

    Parameters
    ----------
    package : Path
        The folder of the package, or the file of a module.
    """
    sha = hashlib.sha256()
    for name, path in sorted(_files(package)):
        data = path.read_bytes().replace(b"\r\n", b"\n")
        # The sizes make the input unambiguous.
        sha.update(f"{len(name.encode())} {len(data)} {name}".encode() + data)
    return sha.hexdigest()


def _files(package: Path) -> Iterator[tuple[str, Path]]:
    if package.is_file():
        yield package.name, package
        return
    for path in package.rglob("*"):
        inside = path.relative_to(package)
        if any(part == "__pycache__" or part.startswith(".") for part in inside.parts):
            continue
        if path.is_file() and not _is_compiled_form(path):
            yield inside.as_posix(), path


def _is_compiled_form(path: Path) -> bool:
    """Return whether this is an extension module beside its Python file. Another extension module has no other file."""
    source = path.with_name(f"{path.name.partition('.')[0]}.py")
    return path.name.endswith(tuple(EXTENSION_SUFFIXES)) and source.exists()


def _plugin(module: str) -> str:
    """Return the entry point's module that contains a module; without an entry point, the package of the module."""
    plugins = [each.module for each in metadata.entry_points(group=ENTRY_POINT_GROUP)]
    mine = [each for each in plugins if module == each or module.startswith(f"{each}.")]
    return max(mine, key=len, default=module.partition(".")[0])
