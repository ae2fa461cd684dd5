"""Compile the append path: Cython translates the unchanged modules of `MODULES` to C. Add the template of a backend.

The README in the metadata has absolute links, because a package index does not have the linked files.

``python hatch_build.py`` compiles the outdated modules in place. ``python hatch_build.py clean`` removes the compiled
modules. The build of a wheel compiles into the wheel. If `obstacle` finds an obstacle, xsem is pure Python: for example
without Cython, a C compiler or the headers of Python, or with the environment variable XSEM_PURE=1.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:   # `python hatch_build.py` needs no hatchling
    BuildHookInterface = MetadataHookInterface = object  # type: ignore[assignment,misc]

ROOT: Final = Path(__file__).parent

MODULES: Final = (
    "xsem/data/streams.py",
    "xsem/facade/arguments.py",
    "xsem/facade/command_list.py",
    "xsem/facade/device.py",
    "xsem/facade/event.py",
    "xsem/facade/recording.py",
    "xsem/facade/resource.py",
    "xsem/facade/semaphore.py",
    "xsem/runtime/device_state.py",
    "xsem/runtime/forks.py",
    "xsem/runtime/lifetime.py",
    "xsem/runtime/mappings.py",
    "xsem/runtime/native.pyx",
    "xsem/runtime/semaphore_state.py",
    "xsem/runtime/threads.py",
    "xsem/runtime/wrapper_lifetime.py",
    "xsem/runtime/queues/completion.py",
    "xsem/runtime/queues/operations.py",
    "xsem/runtime/queues/prepared_append.py",
    "xsem/runtime/queues/prepared_cache.py",
    "xsem/runtime/queues/queue.py",
    "xsem/runtime/queues/queue_table.py",
    "xsem/runtime/queues/semaphore_changes.py",
    "xsem/runtime/queues/timeline_values.pyx",
    "xsem/spi/native_call.pyx",
    "xsem/facade/dlpack_native.pyx",
    "backends/cuda/xsem_cuda/default_streams.py",
    "backends/cuda/xsem_cuda/device.py",
    "backends/cuda/xsem_cuda/fences.py",
    "backends/cuda/xsem_cuda/prepared.py",
    "backends/cuda/xsem_cuda/queue.py",
    "backends/cuda/xsem_cuda/stream_calls.py",
    "backends/cuda/xsem_cuda/streams.py",
)
"""The compiled modules. A `.pxd` file beside a module declares the C fields of its classes.

They include each module with a ``with`` statement on `xsem.runtime.native.Lock`: from CPython 3.14 on, Ctrl-C in an
interpreted module can come between the C code of ``__enter__`` and the block.
"""

# Code of Cython 3.3.0 ends the process with a segmentation fault, for example at a second signal with `allow_rewind`
# (CPython 3.12.1 and 3.12.3).
_CYTHON: Final = (3, 3, 1)   # as in pyproject.toml
_CUDA: Final = "backends/cuda/"
_LINK: Final = re.compile(r"(!?)\[([^\[\]]*)\]\((?![a-z]+:|#)([^()\s]+)\)")   # relative, not into the page itself

# annotation_typing: the types of C fields and variables come only from the .pxd files. nonecheck: the access to an
# attribute of None raises AttributeError, as in Python. auto_pickle: the objects refuse pickling, as in Python.
# unraisable_tracebacks: an exception in a finalizer goes only to sys.unraisablehook.
_DIRECTIVES: Final = ("annotation_typing=False", "nonecheck=True", "auto_pickle=False", "unraisable_tracebacks=False")


def installed(module: str) -> str:
    """Return the path of a module in a wheel."""
    return module.removeprefix(_CUDA)


def obstacle() -> str:
    """Return the reason against a compilation here, or an empty string."""
    if os.environ.get("XSEM_PURE", "0") not in {"", "0"}:
        return "XSEM_PURE is set"
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


def compile_modules(to: Path, work: Path) -> list[Path]:
    """Compile the outdated modules, and return the files of all modules.

    The modules share the layout of their objects, so old and new ones do not import together. The new ones therefore
    take their places one directly after the other, when all are compiled.

    Parameters
    ----------
    to : Path
        Root folder of the compiled modules.
    work : Path
        Folder for the C files.

    Raises
    ------
    subprocess.CalledProcessError
        Cython or the C compiler refused a module. The error contains the output.
    """
    work.mkdir(parents=True, exist_ok=True)
    declarations = [ROOT / "hatch_build.py", *_in_packages("*.pxd")]   # these files depend on each other
    newest = max(path.stat().st_mtime for path in declarations)
    files = {module: to / (module.partition(".")[0] + sysconfig.get_config_var("EXT_SUFFIX")) for module in MODULES}
    stale = [module for module, file in files.items() if not file.exists()
             or file.stat().st_mtime < max(newest, (ROOT / module).stat().st_mtime)]
    if stale:
        print(f"compiling {len(stale)} modules of xsem", flush=True)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            made = list(pool.map(lambda module: _compile(module, Path(folder), work), stale))
        for module, new in zip(stale, made, strict=True):
            files[module].parent.mkdir(parents=True, exist_ok=True)
            new.replace(files[module])
    return list(files.values())


def _compile(module: str, folder: Path, work: Path) -> Path:
    name = installed(module).partition(".")[0].replace("/", ".")
    c = work / f"{name}.c"
    directives = [word for each in _DIRECTIVES for word in ("--directive", each)]
    _run(sys.executable, "-m", "cython", "-3", *directives, "-I.", f"-I{_CUDA}", "--module-name", name, "-o", str(c),
         module)
    made = folder / f"{name}.so"
    _run(*_compiler(), *shlex.split(os.environ.get("CFLAGS", "-O2")), "-fPIC", "-w",
         f"-I{sysconfig.get_path('include')}", str(c), "-o", str(made))
    return made


def _in_packages(pattern: str) -> list[Path]:
    return [path for folder in ("xsem", "backends") for path in (ROOT / folder).rglob(pattern)]


def _compiler() -> list[str]:
    """Return the command to compile and link a shared object."""
    command = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    return [*shlex.split(os.environ["CC"]), *command[1:]] if "CC" in os.environ else command


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                   stderr=subprocess.STDOUT, text=True)


def clean() -> None:
    """Remove the compiled modules from the source tree."""
    for module in MODULES:
        for file in (ROOT / module).parent.glob(f"{Path(module).stem}.*.so"):
            file.unlink()


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The build hook of hatchling. The hook adds the template of a backend and the compiled modules to the wheel.

    The compiled modules are for this Python and this platform.
    """

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the template and the modules, except for an editable installation.

        For an editable installation, `main` compiles in place, and the template is in the clone.
        """
        if version == "editable":
            return
        build_data["force_include"].update(template())
        why = obstacle()
        if not why:
            work = ROOT / "build" / "wheel"
            try:
                compile_modules(work, work)
            except subprocess.CalledProcessError as error:
                why = f"{' '.join(error.cmd[:3])} … failed:\n{error.output}"
            else:
                for module in MODULES:
                    file = module.partition(".")[0] + sysconfig.get_config_var("EXT_SUFFIX")
                    build_data["force_include"][str(work / file)] = installed(file)
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
        if why:
            self.app.display_info(f"xsem: pure Python, nothing is compiled: {why}")


class CustomMetadataHook(MetadataHookInterface):
    """The metadata hook of hatchling: the README with absolute links."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, metadata["urls"]["Source"])}


def main() -> int:
    """Compile in place, or clean. Return the exit status: 1 if the compilation failed, otherwise 0."""
    if sys.argv[1:] == ["clean"]:
        clean()
        return 0
    why = obstacle()
    if why:
        print(f"xsem is not compiled: {why}")
        return 0
    try:
        made = compile_modules(ROOT, ROOT / "build" / "compiled")
        # A compiled module of an earlier tree would hide its source.
        for file in set(_in_packages(f"*{sysconfig.get_config_var('EXT_SUFFIX')}")) - set(made):
            file.unlink()
    except subprocess.CalledProcessError as error:
        clean()
        print(f"xsem is not compiled: {' '.join(error.cmd)}\n{error.output}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
