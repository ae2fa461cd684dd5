"""Build the wheel: README with absolute links, the template of a backend, a list of what it contains, compiled modules.

``python hatch_build.py`` compiles the outdated modules in place, and ``python hatch_build.py clean`` removes them. The
build of a wheel compiles only with the environment variable XSEM_COMPILE=1. If it is not set, xsem is pure Python.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Final

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:   # `python hatch_build.py` needs no hatchling
    BuildHookInterface = MetadataHookInterface = object  # type: ignore[assignment,misc]

ROOT: Final = Path(__file__).parent

MODULES: Final = ("xsem/runtime/_append.pyx", "xsem/facade/dlpack_native.pyx")
"""The compiled modules. Without them, xsem does the same in Python."""

# Code of Cython 3.3.0 ends the process with a segmentation fault, for example at a second signal with `allow_rewind`
# (CPython 3.12.1 and 3.12.3).
_CYTHON: Final = (3, 3, 1)   # as in the extra `dev` of pyproject.toml
_LINK: Final = re.compile(r"(!?)\[([^\[\]]*)\]\((?![a-z]+:|#)([^()\s]+)\)")   # relative, not into the page itself


def obstacle() -> str:
    """Return the reason against a compilation here, or an empty string."""
    if sys.implementation.name != "cpython" or os.name != "posix":
        return "only CPython on Linux and macOS is supported"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "the compiled modules need the GIL"
    try:
        cython = importlib.metadata.version("cython")
    except importlib.metadata.PackageNotFoundError:
        return "Cython is not installed"
    if tuple(map(int, re.findall(r"[0-9]+", cython)[:3])) < _CYTHON:
        return f"Cython {cython} is installed, and {'.'.join(map(str, _CYTHON))} or later is needed"
    if not shutil.which(_compiler()[0]):
        return f"the C compiler {_compiler()[0]} is not installed"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "the headers of Python are not installed (Debian, Ubuntu: apt-get install python3-dev)"
    return ""


def template() -> dict[str, str]:
    """Return the files of the template of a backend: the path in the wheel by the path in the clone.

    ``xsem conformance new-backend`` writes this template. A clone can also contain caches and builds.
    """
    folder = ROOT / "examples" / "backend-template"
    files = [*folder.glob("*.toml"), *folder.glob("*.md"), *folder.glob("xsem_toy/*.py"),
             *folder.glob("tests/*.py"), *folder.glob(".github/workflows/*.yml")]
    return {str(file): f"xsem_conformance/backend_template/{file.relative_to(folder).as_posix()}"
            for file in files if file.is_file()}


def absolute(readme: str, source: str) -> str:
    """Return a Markdown text with absolute links.

    Parameters
    ----------
    readme : str
        The text, with links relative to the root of the repository.
    source : str
        Address of the repository.
    """
    return _LINK.sub(lambda link: f"{link[1]}[{link[2]}]({source}/{'raw' if link[1] else 'blob'}/main/{link[3]})",
                     readme)


def bill_of_materials(xsem: str, cython: str = "") -> str:
    """Return what a wheel contains, in CycloneDX. The place for it in a wheel is from PEP 770.

    Parameters
    ----------
    xsem : str
        Version of xsem.
    cython : str
        Version of Cython, whose own functions are in each module that it compiled.
    """
    ours, *others = (
        {"type": "library", "bom-ref": name, "name": name, "version": version,
         "licenses": [{"license": {"id": "Apache-2.0"}}], "purl": f"pkg:pypi/{name}@{version}"}
        for name, version in (("xsem", xsem), ("cython", cython)) if version)
    return json.dumps({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "metadata": {"component": ours},
        "components": others, "dependencies": [{"ref": "xsem", "dependsOn": [each["name"] for each in others]}],
    }, indent=1)


def compile_modules(to: Path) -> list[Path]:
    """Compile the outdated modules, and return the files of all modules.

    A new file takes the place of the old one when it is complete, so an interrupted or failed compilation leaves the
    old one.

    Parameters
    ----------
    to : Path
        Root folder of the compiled modules.

    Raises
    ------
    subprocess.CalledProcessError
        Cython or the C compiler refused a module. The error contains the output.
    """
    work = ROOT / "build"
    work.mkdir(exist_ok=True)
    files = []
    for module in MODULES:
        file = to / (module.partition(".")[0] + sysconfig.get_config_var("EXT_SUFFIX"))
        sources = (ROOT / module, ROOT / "hatch_build.py")
        if not file.exists() or file.stat().st_mtime < max(source.stat().st_mtime for source in sources):
            print(f"compiling {module}", flush=True)
            file.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=work) as folder:
                _compile(module, Path(folder)).replace(file)
        files.append(file)
    return files


def _compile(module: str, folder: Path) -> Path:
    c, made = folder / "module.c", folder / "module.so"
    name = module.partition(".")[0].replace("/", ".")
    _run(sys.executable, "-m", "cython", "-3", "--module-name", name, "-o", str(c), module)
    _run(*_compiler(), *shlex.split(os.environ.get("CFLAGS", "-O2")), "-fPIC", "-w",
         f"-I{sysconfig.get_path('include')}", str(c), "-o", str(made))
    return made


def _compiler() -> list[str]:
    """Return the command to compile and link a shared object."""
    command = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    return [*shlex.split(os.environ["CC"]), *command[1:]] if "CC" in os.environ else command


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                   stderr=subprocess.STDOUT, text=True)


def clean() -> None:
    """Remove all compiled modules from the source tree, also those of earlier versions."""
    for folder in ("xsem", "backends"):
        for file in (ROOT / folder).rglob("*.so"):
            file.unlink()


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook of hatchling for the wheel."""

    def dependencies(self) -> list[str]:
        """Return what the build needs besides hatchling: Cython, if it compiles."""
        return [f"cython>={'.'.join(map(str, _CYTHON))}"] if _wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the template of a backend, the bill of materials and, if wanted, the modules for this Python."""
        if version == "editable":
            return   # the template is in the clone, and `main` compiles in place
        build_data["force_include"].update(template())
        bill = ROOT / "build" / "xsem.cdx.json"
        bill.parent.mkdir(exist_ok=True)
        bill.write_text(bill_of_materials(self.metadata.version), encoding="utf-8")
        build_data["sbom_files"].append(str(bill.relative_to(ROOT)))
        if not _wanted():
            return
        if why := obstacle():
            sys.exit(f"xsem cannot be compiled, as XSEM_COMPILE asks: {why}")
        work = ROOT / "build" / "wheel"
        try:
            made = compile_modules(work)
        except subprocess.CalledProcessError as error:
            sys.exit(_told(error))
        cython = importlib.metadata.version("cython")
        bill.write_text(bill_of_materials(self.metadata.version, cython), encoding="utf-8")
        build_data["force_include"].update({str(file): str(file.relative_to(work)) for file in made})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _wanted() -> bool:
    """Return whether the wheel gets compiled modules."""
    return os.environ.get("XSEM_COMPILE", "0") not in {"", "0"}


def _told(error: subprocess.CalledProcessError) -> str:
    return f"xsem is not compiled: {shlex.join(error.cmd)} failed:\n{error.output}"


class CustomMetadataHook(MetadataHookInterface):
    """The metadata hook of hatchling: the README with absolute links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["urls"]["Source"])}


def main() -> int:
    """Compile in place, or clean. Return the exit status: 1 if xsem could not be compiled, otherwise 0."""
    if sys.argv[1:] == ["clean"]:
        clean()
        return 0
    if why := obstacle():
        print(f"xsem is not compiled: {why}", file=sys.stderr)
        return 1
    try:
        compile_modules(ROOT)
    except subprocess.CalledProcessError as error:
        print(_told(error), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
