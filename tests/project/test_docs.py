"""Every Python block of README and docs is a program that works; one that needs a GPU says so and is type-checked.

A block is run as it stands, in a process and a folder of its own. A comment before the fence can set up
names from the text: ``<!-- given`` on a line, Python, ``-->``. A block that begins with "# needs a GPU" is
checked by mypy instead, with the stand-ins of tests/typing/stubs.
"""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import lint
import pytest
from support.paths import ROOT

import xsem

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A block with any other spelling would never run.
LANGUAGES = {"python", "c", "cpp", "console", "toml", "json", "text", "mermaid"}
_FENCE = re.compile(r"(?:<!-- given\n(?P<given>.*?)-->\n+)?^(?P<indent> *)```(?P<info>[^\n]*)\n(?P<code>.*?)^ *```$",
                    re.DOTALL | re.MULTILINE)
_START = "# ---- the block\n"


@dataclass(frozen=True)
class Block:
    """A fenced block: its place, its language, and its program."""

    where: str
    language: str
    program: str

    @property
    def needs_gpu(self) -> bool:
        return self.program.partition(_START)[2].startswith("# needs a GPU")


def blocks(text: str, name: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start("code"))
        given, code = match["given"] or "", match["code"]
        found.append(Block(f"{name}:{line}", match["info"].strip(), given + _START + code))
    return found


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    program = folder / "block.py"
    program.write_text(block.program)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "XSEM"))}
    return subprocess.run([sys.executable, "-W", "error", str(program)], cwd=folder, env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=50,
                          check=False)


def type_check(block: Block, folder: Path) -> tuple[bool, str]:
    program = folder / "block.py"
    program.write_text(block.program)
    _, passed, said, _ = lint.run("", lint.scenarios_mypy("--ignore-missing-imports", str(program)), lint.STUBS)
    return passed, said


ALL = [block for page in PAGES for block in blocks(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)))]


@pytest.mark.parametrize("block", [block for block in ALL if block.language == "python"], ids=lambda block: block.where)
def test_python_block_works(block: Block, tmp_path: Path) -> None:
    if block.needs_gpu:
        passed, said = type_check(block, tmp_path)
        assert passed, said
    else:
        done = run(block, tmp_path)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_block_names_a_known_language(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = blocks(text, page.name)
    assert len(found) * 2 == len(re.findall(r"^ *```", text, re.MULTILINE))
    assert [(block.where, block.language) for block in found if block.language not in LANGUAGES] == []


def test_readme_has_a_program() -> None:
    assert [block for block in ALL if block.where.startswith("README.md") and block.language == "python"
            and not block.needs_gpu]


def test_failing_block_is_detected(tmp_path: Path) -> None:
    good, bad = blocks("""
```python
print('so')
```
<!-- given
value = 1
-->
```python
assert value == 2
```
""", "page")
    assert (good.where, bad.where) == ("page:2", "page:8")
    done = run(good, tmp_path)
    assert (done.returncode, done.stdout) == (0, "so\n")
    done = run(bad, tmp_path)
    assert done.returncode == 1
    assert "assert value == 2" in done.stdout


def test_wrong_type_in_a_block_for_a_gpu_is_detected(tmp_path: Path) -> None:
    good, bad, plain = blocks("""
<!-- given
import xsem
device = xsem.open_device("cuda")
-->
```python
# needs a GPU
device.create_event().wait(timeout_s=2.0)
```
```python
# needs a GPU
import xsem
xsem.open_device("cuda").create_event().wait(2.0)
```
```python
print("this needs a GPU")
```
""", "page")
    assert [block.needs_gpu for block in (good, bad, plain)] == [True, True, False]
    assert type_check(good, tmp_path) == (True, "")
    passed, said = type_check(bad, tmp_path)
    assert not passed
    assert 'Too many positional arguments for "wait"' in said


@pytest.mark.parametrize("name", sorted(
    each.name for each in pkgutil.walk_packages(xsem.__path__, "xsem.") if not each.name.endswith("__main__")
))
def test_examples_in_docstrings_work(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0
