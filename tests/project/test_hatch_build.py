"""The compilation in place: all modules of a tree are new, or all are old."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.paths import ROOT

# Cython and the compiler write a word in place of code. The second module never gets ready if a file is given for its
# beginning. One module after the other, so that the first one is done by then.
BUILD = """
import os, pathlib, sys, time
import hatch_build
word, *blocked = sys.argv[1:]

def run(*command):
    made = pathlib.Path(command[command.index("-o") + 1])
    if "second" in made.name and blocked:
        pathlib.Path(blocked[0]).touch()
        time.sleep(600)
    made.write_text(word)

hatch_build.MODULES = ("xsem/first.py", "xsem/second.py")
hatch_build._run = run
os.cpu_count = lambda: 1
hatch_build.compile_modules(hatch_build.ROOT, hatch_build.ROOT / "build")
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    (tmp_path / "xsem").mkdir()
    for name in ("first", "second"):
        (tmp_path / "xsem" / f"{name}.py").touch()
    return tmp_path


def build(tree: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", BUILD, *arguments], cwd=tree, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL)


def words(tree: Path) -> list[str]:
    return sorted(path.read_text(encoding="utf-8") for path in (tree / "xsem").iterdir() if path.suffix != ".py")


def test_killed_build_leaves_the_old_modules(tree: Path) -> None:
    assert build(tree, "old").wait(60) == 0
    assert words(tree) == ["old", "old"]
    blocked = tree / "blocked"
    with (tree / "hatch_build.py").open("a", encoding="utf-8") as file:   # so all modules are outdated
        file.write("# changed\n")
    running = build(tree, "new", str(blocked))
    try:
        end = time.monotonic() + 60
        while not blocked.exists():
            assert running.poll() is None, "the build has ended"
            assert time.monotonic() < end, "the build does not reach the second module"
            time.sleep(0.01)
        assert words(tree) == ["old", "old"]   # an import during the build
    finally:
        running.kill()
        running.wait()
    assert words(tree) == ["old", "old"]
    assert build(tree, "new").wait(60) == 0
    assert words(tree) == ["new", "new"]
