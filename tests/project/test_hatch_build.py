"""The compilation in place, and what the build of a wheel needs for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hatchling import build as hatchling
from support.paths import ROOT
from support.waiting import until

import hatch_build

# Cython and the compiler write a word in place of code. The second module never gets ready if a file is given for its
# beginning, and the compiler refuses the word "wrong".
BUILD = """
import pathlib, subprocess, sys, time
import hatch_build
word, *blocked = sys.argv[1:]

def run(*command):
    made = pathlib.Path(command[command.index("-o") + 1])
    if made.suffix == ".so" and (second := "second" in made.with_suffix(".c").read_text()):
        if word == "wrong":
            raise subprocess.CalledProcessError(1, command, "no")
        if blocked:
            pathlib.Path(blocked[0]).touch()
            time.sleep(600)
    made.write_text(word if made.suffix == ".so" else command[-1])

hatch_build.MODULES = ("xsem/first.pyx", "xsem/second.pyx")
hatch_build._run = run
sys.argv[1:] = []
hatch_build.obstacle = str
sys.exit(hatch_build.main())
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    (tmp_path / "xsem").mkdir()
    for name in ("first", "second"):
        (tmp_path / "xsem" / f"{name}.pyx").touch()
    return tmp_path


def build(tree: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", BUILD, *arguments], cwd=tree, stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def words(tree: Path) -> list[str]:
    """The compiled modules, in the order of their names."""
    return [path.read_text(encoding="utf-8") for path in sorted((tree / "xsem").glob("*.so"))]


def change(tree: Path, name: str) -> None:
    """Make the compiled form of a file outdated."""
    later = time.time() + 60
    os.utime(tree / name, (later, later))


def test_only_outdated_modules_are_compiled(tree: Path) -> None:
    assert build(tree, "old").wait(60) == 0
    assert words(tree) == ["old", "old"]
    assert build(tree, "new").wait(60) == 0
    assert words(tree) == ["old", "old"]
    change(tree, "xsem/first.pyx")
    assert build(tree, "new").wait(60) == 0
    assert words(tree) == ["new", "old"]
    change(tree, "hatch_build.py")
    assert build(tree, "last").wait(60) == 0
    assert words(tree) == ["last", "last"]


def test_failed_build_leaves_the_old_module(tree: Path) -> None:
    assert build(tree, "old").wait(60) == 0
    change(tree, "xsem/second.pyx")
    assert build(tree, "wrong").wait(60) == 1
    assert words(tree) == ["old", "old"]
    assert not any((tree / "build").iterdir())


def test_killed_build_leaves_the_old_module(tree: Path) -> None:
    assert build(tree, "old").wait(60) == 0
    blocked = tree / "blocked"
    change(tree, "hatch_build.py")
    running = build(tree, "new", str(blocked))
    try:
        until(lambda: blocked.exists() or running.poll() is not None, deadline_s=60)
        assert running.poll() is None, "the build has ended"
        assert words(tree) == ["new", "old"]   # an import during the build
    finally:
        running.kill()
        running.wait()
    assert words(tree) == ["new", "old"]
    assert build(tree, "last").wait(60) == 0
    assert words(tree)[1] == "last"


def test_clean_removes_all_compiled_modules(tree: Path) -> None:
    assert build(tree, "old").wait(60) == 0
    (tree / "xsem" / "of_an_earlier_version.so").touch()
    subprocess.run([sys.executable, "hatch_build.py", "clean"], cwd=tree, check=True, stdin=subprocess.DEVNULL)
    assert words(tree) == []


def test_compilation_that_is_impossible_says_why(tree: Path) -> None:
    done = subprocess.run([sys.executable, "hatch_build.py"], cwd=tree, check=False, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, env={**os.environ, "CC": "no-such-compiler"})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "xsem is not compiled: the C compiler no-such-compiler is not installed\n"


@pytest.mark.parametrize(("asked", "needed"), [
    ({}, []), ({"XSEM_COMPILE": "0"}, []), ({"XSEM_COMPILE": ""}, []), ({"XSEM_COMPILE": "1"}, ["cython>=3.3.1"])])
def test_wheel_needs_cython_only_if_it_compiles(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, str], needed: list[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("XSEM_COMPILE", raising=False)
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert hatchling.get_requires_for_build_wheel() == needed


@pytest.mark.parametrize("module", hatch_build.MODULES)
def test_every_module_is_there(module: str) -> None:
    assert (ROOT / module).is_file()
