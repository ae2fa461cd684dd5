"""Identify the tested code of a report: the backend's files and the vendor's libraries."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from xsem import spi
from xsem.cli.text import printable
from xsem.plugins import ENTRY_POINT_GROUP

__all__ = ["digest", "libraries_in_words", "of", "package_of"]


def of(backend: spi.Backend, index: int) -> dict[str, Any] | None:
    """Return the identity of the code of a device for the report; None if the module of the plugin has no files."""
    module = package_of(backend)
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
        return {"package": module, "sha256": digest(Path(places[0])), "libraries": _libraries(backend, index)}
    except OSError:   # a file may be unreadable; the run must continue
        return None


def digest(package: Path) -> str:
    """Return the SHA-256 over names and contents of a backend's files."""
    # It is equal for a package in a clone and for the installed wheel: caches, line endings and the compiled forms of
    # Python files do not count.
    sha = hashlib.sha256()
    for name, path in sorted(_files(package)):
        data = path.read_bytes().replace(b"\r\n", b"\n")
        # The sizes make the input unambiguous.
        sha.update(f"{len(name.encode())} {len(data)} {name}".encode() + data)
    return sha.hexdigest()


def libraries_in_words(report: Mapping[str, Any]) -> str:
    """Return the vendor's libraries of a report: "unknown" for an older report, "none named" for an empty list."""
    told = (report.get("code") or {}).get("libraries")
    if told is None:
        return "unknown"
    return "; ".join(each["name"] + (f" (SHA-256 {each['sha256'][:12]}…)" if each["sha256"] else "")
                     for each in told) or "none named"


def _libraries(backend: spi.Backend, index: int) -> list[dict[str, str | None]] | None:
    try:
        return [{"name": printable(each.name if isinstance(each, Path) else str(each)),   # no path of the machine
                 "sha256": _file_digest(each) if isinstance(each, Path) else None}
                for each in backend.libraries(index)]
    except Exception:   # a defect of the method must not stop the run
        return None


def _file_digest(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError:   # a driver can be replaced or removed while it is loaded
        return None


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


def package_of(backend: spi.Backend) -> str:
    """Return the entry point's module that contains the backend; without an entry point, the package of its module."""
    module = type(backend).__module__
    plugins = [each.module for each in metadata.entry_points(group=ENTRY_POINT_GROUP)]
    mine = [each for each in plugins if module == each or module.startswith(f"{each}.")]
    return max(mine, key=len, default=module.partition(".")[0])
