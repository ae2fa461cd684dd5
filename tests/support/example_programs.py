"""Run the examples as programs, with stand-ins for the libraries that they import."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from support.cuda_sim import stand_in_environment
from support.paths import ROOT, TESTS

__all__ = ["EXAMPLES", "changed", "example", "run_program", "with_libraries", "without"]

EXAMPLES = ROOT / "examples"
_LIBRARY = TESTS / "support" / "array_library.py"


def run_program(
    program: Path, *arguments: str, environment: dict[str, str] | None = None, timeout_s: float = 100.0
) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end, with warnings as errors."""
    return subprocess.run([sys.executable, "-W", "error", str(program), *arguments], check=False, timeout=timeout_s,
                          env=environment or dict(os.environ), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)


def example(name: str, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the example of this name, without the suffix."""
    return run_program(EXAMPLES / f"{name}.py", *arguments, environment=environment)


def changed(folder: Path, name: str, old: str, new: str) -> Path:
    """Write a copy of the example in which `new` replaces `old`, and return its path."""
    text = (EXAMPLES / f"{name}.py").read_text()
    assert text.count(old) == 1, (old, text.count(old))
    shutil.copy(EXAMPLES / "renderer.py", folder)
    program = folder / f"{name}.py"
    program.write_text(text.replace(old, new))
    return program


def without(folder: Path, *packages: str) -> dict[str, str]:
    """Return an environment in which these packages are missing, even if they are installed."""
    (folder / "sitecustomize.py").write_text(f"import sys\nfor name in {packages!r}: sys.modules[name] = None\n")
    return {**os.environ, "PYTHONPATH": _path(folder, os.environ)}


def with_libraries(folder: Path, *names: str, wrong: str = "") -> dict[str, str]:
    """Return an environment with the stand-ins for libcuda and for array libraries of these names."""
    for name in names:
        shutil.copy(_LIBRARY, folder / f"{name}.py")
    environment = stand_in_environment()
    return {**environment, "PYTHONPATH": _path(folder, environment), "ARRAY_LIBRARY_WRONG": wrong}


def _path(folder: Path, environment: os._Environ[str] | dict[str, str]) -> str:
    return os.pathsep.join([str(folder), *filter(None, [environment.get("PYTHONPATH")])])
