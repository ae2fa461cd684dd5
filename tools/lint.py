"""Run all static checks, two at a time: ``python tools/lint.py``. The findings appear in the order of `checks`."""

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
    """Return the command of every check by name, and its additional environment variables."""
    packages = [str(path.relative_to(ROOT)) for path in contracts.packages(ROOT).values()]
    # Tests of fds and forks, benchmarks and the template run on Linux only. The installed packages must be right on
    # every platform.
    checked = {
        "linux": [*packages, "tests", "tools", "benchmarks", "examples/backend-template"], "win32": packages,
        "darwin": packages,
    }
    every: dict[str, tuple[list[str], dict[str, str]]] = {
        # One cache for each platform: mypy discards a cache when the platform changes.
        f"mypy, {platform}": ([f"{BIN}/mypy", "--no-error-summary", f"--platform={platform}",
                               f"--cache-dir=.mypy_cache/{platform}", *paths], {})
        for platform, paths in checked.items()
    }
    every["ruff"] = ([f"{BIN}/ruff", "check", "--quiet"], {})
    every["mypy, scenarios"] = (scenarios_mypy(), STUBS)
    every["pyright, scenarios"] = (scenarios_pyright(), {})
    every["contracts"] = ([sys.executable, "tools/contracts.py"], {})
    # Offline, because its other checks ask GitHub.
    every["workflows"] = ([f"{BIN}/zizmor", "--offline", "--quiet", "--strict-collection", ".github",
                           "examples/backend-template/.github"], {})
    every["words"] = ([sys.executable, "tools/words.py"], {})
    every["reports"] = ([sys.executable, "tools/report_files.py", "--check"], {})
    return every


def scenarios_mypy(*files: str) -> list[str]:
    """Return the mypy command for users' code, by default tests/typing and examples. Its environment needs STUBS."""
    scenarios = sorted(str(path.relative_to(ROOT)) for folder in ("tests/typing", "examples")
                       for path in (ROOT / folder).glob("*.py"))
    return [f"{BIN}/mypy", "--no-error-summary", "--cache-dir=.mypy_cache/scenarios", *(files or scenarios)]


def scenarios_pyright(*files: str) -> list[str]:
    """Return the pyright command for users' code, by default tests/typing and examples."""
    return [f"{BIN}/pyright", "--pythonpath", sys.executable, "--warnings", *files]


def run(name: str, command: list[str], more: dict[str, str]) -> tuple[str, bool, str, float]:
    """Run one check. Return its name, whether it passed, its output, and seconds."""
    start = time.monotonic()
    # pyright uses the node of the package that pyproject.toml names, not a node of this machine.
    environment = os.environ | {"PYRIGHT_PYTHON_GLOBAL_NODE": "off", "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"} | more
    done = subprocess.run(command, cwd=ROOT, env=environment, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return name, done.returncode == 0, done.stdout, time.monotonic() - start


def main() -> int:
    """Run all checks. Return the number of checks with findings, as the exit status."""
    with ThreadPoolExecutor(2) as pool:
        found = 0
        jobs = [pool.submit(run, name, *check) for name, check in checks().items()]
        for job in jobs:
            name, passed, printed, seconds = job.result()
            print(f"{'ok    ' if passed else 'FAILED'}  {name}  ({seconds:.1f} s)", flush=True)
            if not passed:
                found += 1
                print(printed.rstrip() or "(no output)", flush=True)
    return found


if __name__ == "__main__":
    sys.exit(main())
