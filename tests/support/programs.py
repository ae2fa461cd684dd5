"""Run the programs of this folder, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from support.paths import TESTS

__all__ = ["printed"]


def printed(
    name: str, *arguments: str, prefix: Sequence[str] = (), environment: Mapping[str, str] = os.environ,
    timeout_s: float = 100,
) -> str:
    """Run a program, which must end well, and return what it printed. `prefix` is a command that runs it."""
    done = subprocess.run(
        [*prefix, sys.executable, "-m", f"support.{name}", *arguments], check=False, capture_output=True, text=True,
        timeout=timeout_s, env={**environment, "PYTHONPATH": f"{TESTS}:{environment.get('PYTHONPATH', '')}"})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
