"""On CPython 3.12 and newer, Ctrl-C in a loop leaves no lock held and no object behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

PROGRAM = ROOT / "tests" / "support" / "loop_jumps.py"
ON_OWN_THREADS = {
    "xsem/ipc/offers.py Server._serve", "xsem/runtime/lifetime.py Releaser._work",
}
"""Loops on threads of xsem. Only the main thread receives KeyboardInterrupt."""


SAMPLE = """
def locked(lock, items):
    with lock:
        while items:
            if items.pop():
                continue
            items.clear()

def cleared(items):
    try:
        for each in items:
            if each:
                each()
    finally:
        items.clear()

def outside(lock, items):
    for each in items:
        with lock:
            each()
"""


def interpreters() -> list[str]:
    """Return the CPython interpreters from 3.12 on: this one, and those of pyenv."""
    folder = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser() / "versions"
    others = [str(each) for each in sorted(folder.glob("3.1[2-9].*/bin/python"))]
    return [sys.executable, *others] if sys.version_info >= (3, 12) else others


def jumps(interpreter: str, *folders: Path) -> list[str]:
    done = subprocess.run([interpreter, str(PROGRAM), *map(str, folders)], capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(params=interpreters() or [""])
def interpreter(request: pytest.FixtureRequest) -> str:
    if not request.param:
        pytest.skip("needs CPython 3.12 or newer in pyenv")
    return str(request.param)


def test_no_loop_with_a_condition_is_inside_a_block(interpreter: str) -> None:
    found = jumps(interpreter, ROOT / "xsem", ROOT / "backends")
    here = [each.replace(f"{ROOT}/", "").partition(": ") for each in found]
    wrong = {f"{place}: {block}" for place, _, block in here
             if f"{place.partition(':')[0]} {place.partition(' ')[2]}" not in ON_OWN_THREADS}
    assert wrong == set(), "move each loop into a function of its own"


def test_program_finds_the_loops(interpreter: str, tmp_path: Path) -> None:
    (tmp_path / "sample.py").write_text(SAMPLE)
    found = [each.rpartition(":")[0].partition(" ")[2] for each in jumps(interpreter, tmp_path)]
    assert set(found) == {"locked", "cleared"}
