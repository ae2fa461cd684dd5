"""``xsem conformance new-backend``: write the project of a new backend."""

from __future__ import annotations

import argparse
import builtins
import importlib.util
import keyword
import pkgutil
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import xsem
from xsem.cli.options import flag
from xsem.cli.status import DONE, UsageError
from xsem.cli.text import printable
from xsem.plugins import ENTRY_POINT_GROUP
from xsem_conformance.cli.reading import add_command, print_json

__all__ = ["add"]

_NAME: Final = re.compile(r"[a-z](_?[a-z0-9])*")
_LONGEST: Final = 32


def add(commands: Any) -> None:
    """Add the command."""
    parser = add_command(
        commands, "new-backend", _new_backend,
        "Write the project of a new backend. The project passes its tests and the core profile.",
        "Exit: 0 written, 2 refused.")
    parser.add_argument("name", metavar="NAME",
                        help="Name of the backend, for example acme: its first device is acme:0.")
    parser.add_argument("--folder", type=Path, metavar="PATH", help="Folder of the project. Default: xsem-NAME.")


def _new_backend(asked: argparse.Namespace) -> int:
    name, folder = asked.name, asked.folder
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise UsageError("NAME", f"{printable(name)!r} is not a name of a backend: a name has at most {_LONGEST} "
                         "lower-case letters, digits and single underscores, and begins with a letter")
    if taken := _taken(name):
        raise UsageError("NAME", f"{name!r} is the name of {taken}: choose the name of the vendor or its API")
    place = Path(f"xsem-{_dashed(name)}") if folder is None else folder
    try:
        place.mkdir()
    except FileExistsError as error:
        raise UsageError("--folder", f"{printable(str(place))} exists already") from error
    except OSError as error:
        raise _cannot_write(place, error) from error
    try:
        written = [_write(place, path, text, name) for path, text in _template()]
    except OSError as error:
        shutil.rmtree(place, ignore_errors=True)
        raise _cannot_write(place, error) from error
    shown = printable(str(place))
    if flag(asked, "json"):
        print_json({"schema": 1, "folder": str(place), "files": [str(each.relative_to(place)) for each in written]})
        return DONE
    if flag(asked, "quiet"):
        print(shown)
        return DONE
    print(f"{shown}: {len(written)} files. The next steps:\n  cd {shown}\n  python -m pip install -e '.[test]'\n"
          f"  python -m pytest\n  xsem conformance run --device {name}:0 --exporter host --profile core")
    return DONE


def _taken(name: str) -> str:
    """Return what has this name already; empty if nothing has."""
    # The vendor's own binding may have the name: the package of the backend is xsem_NAME, and hides no module NAME.
    if keyword.iskeyword(name) or keyword.issoftkeyword(name) or hasattr(builtins, name):
        return "a word of Python"
    if name == xsem.__name__ or any(each.name == name for each in pkgutil.iter_modules(xsem.__path__)):
        return "a package of xsem"
    if name in sys.stdlib_module_names:
        return "a module of Python"
    backends = {each.name for each in metadata.entry_points(group=ENTRY_POINT_GROUP)}
    if name in backends or importlib.util.find_spec(f"xsem_{name}") is not None:
        return "an installed package or backend"
    try:
        metadata.distribution(f"xsem-{_dashed(name)}")
    except metadata.PackageNotFoundError:
        return ""
    return "an installed package or backend"


def _folders() -> tuple[Path, Path]:
    """Return the folder of the template in a wheel, and in a clone. hatch_build.py copies the folder into the wheel."""
    here = Path(__file__)
    return here.parents[1] / "backend_template", here.parents[3] / "examples" / "backend-template"


def _template() -> Iterator[tuple[Path, str]]:
    """Yield path and text of each file of the template."""
    root = next(each for each in _folders() if each.is_dir())
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root)
        # A clone may contain caches and builds in the same folder.
        if file.is_file() and not any(each in ("__pycache__", "build", "dist") or each.endswith(".egg-info")
                                      or (each.startswith(".") and each != ".github") for each in path.parts):
            yield path, file.read_text(encoding="utf-8")


def _write(place: Path, path: Path, text: str, name: str) -> Path:
    file = place / _renamed(str(path), name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(_renamed(text, name), encoding="utf-8", newline="\n")
    return file


def _renamed(text: str, name: str) -> str:
    return (text.replace("xsem-toy", f"xsem-{_dashed(name)}").replace("Toy", name.title().replace("_", ""))
            .replace("toy", name))


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _cannot_write(place: Path, error: OSError) -> UsageError:
    return UsageError("--folder", f"{printable(str(place))} cannot be written: {error.strerror or error}")
