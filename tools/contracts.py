"""Check who may import whom: ``python tools/contracts.py [root of the tree]``.

The contracts are import-linter's. They are written out here for the packages that the tree has, because import-linter
refuses a configuration that names a package which does not exist; so a backend is under contract from its first commit.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import tempfile
import tomllib
from pathlib import Path

ALLOWED_IN_BACKENDS = ("xsem.spi", "xsem.types", "xsem.errors")
"""All that a backend may import of xsem. (Direct imports count: xsem.types itself gathers from other modules.)"""

# From the top to the bottom: a module imports from lines below its own, and from neighbours on its line. A name in
# parentheses may be absent. Every module has a place; a new one must be given its own.
INSIDE_XSEM = """
    (__main__)
    (cli)
    (ipc)
    entry
    device
    commands : watch
    arguments
    prepared : recording : memory : events
    semaphore : mipmap : buffer
    transfer
    resource
    diagnosis : ownership : promises : queued : stamps : issue
    books
    progress
    entries
    session
    plain : noted
    state : mappings
    lifetime : notify
    gate : origins
    plugins
    spi
    types
    descriptors
    spawning
    handles : params : uuids : layout : streams : timeouts : forks : dlpack : background : fds : claims
    errors
    info
    handle_types
"""


def packages(root: Path) -> dict[str, Path]:
    """Folder of every package in the wheel, by name, as pyproject.toml lists them."""
    with (root / "pyproject.toml").open("rb") as file:
        listed = tomllib.load(file)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return {Path(each).name: root / each for each in listed}


def backends(root: Path) -> list[str]:
    """The packages under ``backends/``."""
    return [name for name, path in packages(root).items() if path.is_relative_to(root / "backends")]


def between_packages(root: Path) -> str:
    """Layers of packages, and what a backend and the suite may see of xsem and of each other."""
    suite = "xsem_conformance" if "xsem_conformance" in packages(root) else None
    text = _head(root, type_checking=True)
    text += _contract("layers", "Layers", "layers",
                      layers=[*([suite] if suite else []), " | ".join(backends(root)), "xsem"])
    text += _contract(
        "backends", "A backend sees xsem.spi, xsem.types and xsem.errors", "forbidden",
        source_modules=backends(root), forbidden_modules=["xsem"], allow_indirect_imports=True,
        ignore_imports=[f"{name}{below} -> {allowed}" for name in backends(root) for below in ("", ".**")
                        for allowed in ALLOWED_IN_BACKENDS],
        unmatched_ignore_imports_alerting="none",
    )
    if suite:
        text += _contract("suite", "The conformance suite knows no backend", "forbidden", source_modules=[suite],
                          forbidden_modules=backends(root))
    return text


def inside_xsem(root: Path) -> str:
    """Layers of modules, at run time: for annotations alone a module may name its owner (Buffer its Device)."""
    layers = [line.strip() for line in INSIDE_XSEM.strip().splitlines()]
    top = {"__init__", "__main__", "cli"}
    modules = sorted(f"xsem.{path.stem}" for path in (root / "xsem").iterdir()
                     if path.stem not in top and (path.suffix == ".py" or (path / "__init__.py").exists()))
    return (
        _head(root, type_checking=False)
        + _contract("inside", "Layers inside xsem", "layers", containers=["xsem"], layers=layers, exhaustive=True)
        + _contract("whole", "No module imports the package as a whole, except the command line", "forbidden",
                    source_modules=modules, forbidden_modules=["xsem"], as_packages=False, allow_indirect_imports=True)
    )


def _head(root: Path, *, type_checking: bool) -> str:
    roots = "".join(f"\n    {name}" for name in packages(root))
    return f"[importlinter]\nroot_packages ={roots}\nexclude_type_checking_imports = {not type_checking}\n"


def _contract(name: str, title: str, kind: str, **options: object) -> str:
    text = f"\n[importlinter:contract:{name}]\nname = {title}\ntype = {kind}\n"
    for key, value in options.items():
        lines = [str(each) for each in value] if isinstance(value, list) else None
        text += f"{key} =" + ("".join(f"\n    {line}" for line in lines) if lines else f" {value}") + "\n"
    return text


def check(root: Path) -> bool:
    """Print the report; True if every contract is kept."""
    # This tree's packages, not those of an editable installation of another one.
    sys.path[:0] = list(dict.fromkeys(str(path.parent) for path in packages(root).values()))
    from importlinter.cli import lint_imports

    os.environ["COLUMNS"] = "200"   # one line for each import
    kept = 0
    for text in (between_packages(root), inside_xsem(root)):
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "contracts.ini"
            config.write_text(text, encoding="utf-8")
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                code = lint_imports(config_filename=str(config), no_cache=True)
        if code != 0:
            print(printed.getvalue())
            return False
        kept += text.count("[importlinter:contract:")
    print(f"{kept} contracts kept")
    return True


if __name__ == "__main__":
    here = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    os.chdir(here)
    sys.exit(0 if check(here) else 1)
