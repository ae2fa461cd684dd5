"""All static checks, two at a time: ``python tools/lint.py``. What is found is printed in the order written here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import contracts

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
STUBS = {"MYPYPATH": str(ROOT / "tests/typing/stubs")}


def checks() -> dict[str, tuple[list[str], dict[str, str]]]:
    """Name of every check, its command and what it adds to the environment."""
    packages = [str(path.relative_to(ROOT)) for path in contracts.packages(ROOT).values()]
    # Tests of fds and forks are about Linux, and so are benchmarks and the template; what is installed must be right
    # everywhere.
    checked = {
        "linux": [*packages, "tests", "tools", "benchmarks", "examples/backend-template"], "win32": packages,
        "darwin": packages,
    }
    every: dict[str, tuple[list[str], dict[str, str]]] = {
        # A cache each: one cache is thrown away whenever the platform changes.
        f"mypy, {platform}": ([f"{BIN}/mypy", "--no-error-summary", f"--platform={platform}",
                               f"--cache-dir=.mypy_cache/{platform}", *paths], {})
        for platform, paths in checked.items()
    }
    every["ruff"] = ([f"{BIN}/ruff", "check", "--quiet"], {})
    every["mypy, scenarios"] = (scenarios_mypy(), STUBS)
    every["pyright, scenarios"] = (scenarios_pyright(), {})
    every["contracts"] = ([sys.executable, "tools/contracts.py"], {})
    every["reports"] = ([sys.executable, "tools/report_files.py", "--check"], {})
    return every


def scenarios_mypy(*files: str) -> list[str]:
    """Check users' code (by default tests/typing and examples) with mypy; STUBS belongs into its environment."""
    scenarios = sorted(str(path.relative_to(ROOT)) for folder in ("tests/typing", "examples")
                       for path in (ROOT / folder).glob("*.py"))
    return [f"{BIN}/mypy", "--no-error-summary", "--cache-dir=.mypy_cache/scenarios", *(files or scenarios)]


def scenarios_pyright(*files: str) -> list[str]:
    """Check users' code (by default tests/typing and examples) with pyright."""
    return [f"{BIN}/pyright", "--pythonpath", sys.executable, "--warnings", *files]


def run(name: str, command: list[str], more: dict[str, str]) -> tuple[str, bool, str, float]:
    """Run one check: name, passed, what it printed, seconds."""
    start = time.monotonic()
    # pyright: the node of the package that pyproject.toml names, not whatever node this machine has.
    environment = os.environ | {"PYRIGHT_PYTHON_GLOBAL_NODE": "off", "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"} | more
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return name, done.returncode == 0, done.stdout, time.monotonic() - start


def main() -> int:
    """Run all; the status is the number of checks that found something."""
    with ThreadPoolExecutor(2) as pool:
        found = 0
        jobs = [pool.submit(run, name, *check) for name, check in checks().items()]
        for job in jobs:
            name, passed, printed, seconds = job.result()
            print(f"{'ok    ' if passed else 'FAILED'}  {name}  ({seconds:.1f} s)", flush=True)
            if not passed:
                found += 1
                print(printed.rstrip() or "(it printed nothing)", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
