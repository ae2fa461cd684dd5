"""Every Python block of README and docs is a program that works; one that needs a GPU says so and is type-checked.

support/doc_blocks.py describes the comments before a block.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import os
import pkgutil
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lint
import pytest
from support import vulkan_sim
from support.cuda_sim import stand_in_environment
from support.doc_blocks import ALL, COMMENT, LANGUAGES, PAGES, START, Block, as_parameters, as_shown, blocks
from support.paths import ROOT

import xsem


@contextlib.contextmanager
def started(block: Block, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a program, and end it."""
    program = folder / block.file
    program.write_text(block.program)
    whole = stand_in_environment() if block.stand_in else os.environ
    environment = {key: value for key, value in whole.items() if not key.startswith(("PYTHON", "XSEM"))}
    with subprocess.Popen([sys.executable, "-u", "-W", "error", str(program)], cwd=folder, env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.kill()   # no effect on a process that has ended


def run(block: Block, folder: Path) -> list[tuple[Block, int, str]]:
    """Run a block and the programs beside it. Return each with its exit status and its output, the block first."""
    with contextlib.ExitStack() as stack:
        processes = []
        for other in block.beside:
            process = stack.enter_context(started(other, folder))
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], 50)[0], f"{other.where} prints nothing"
            processes.append((other, process))
        processes.insert(0, (block, stack.enter_context(started(block, folder))))
        done = []
        for each, process in processes:
            said, _ = process.communicate(timeout=50)
            done.append((each, process.returncode, said))
        return done


def type_check(block: Block, folder: Path) -> tuple[bool, str]:
    program = folder / "block.py"
    program.write_text(block.program)
    _, passed, said, _ = lint.run("", lint.scenarios_mypy("--ignore-missing-imports", str(program)), lint.STUBS)
    return passed, said


@pytest.mark.parametrize("block", as_parameters(
    block for block in ALL if block.language == "python" and block.file == "block.py"))
def test_python_block_works(block: Block, tmp_path: Path) -> None:
    if block.needs_gpu:
        passed, said = type_check(block, tmp_path)
        assert passed, said
    else:
        for each, status, said in run(block, tmp_path):
            assert status == 0, said
            assert as_shown(each, said), f"{each.where} shows\n{each.output}\nand the program prints\n{said}"


def compile_cpp(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler (g++)")
    program = folder / "block.cpp"
    program.write_text(block.program.partition(START)[2])
    return subprocess.run([compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Werror",
                           f"-I{vulkan_sim.folder() / 'include'}", f"-I{ROOT / 'examples' / 'c'}", str(program)],
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=50, check=False)


@pytest.mark.parametrize("block", [block for block in ALL if block.language == "cpp"], ids=lambda block: block.where)
def test_cpp_block_compiles(block: Block, tmp_path: Path) -> None:
    done = compile_cpp(block, tmp_path)
    assert done.returncode == 0, done.stdout


def test_cpp_block_with_a_wrong_name_is_detected(tmp_path: Path) -> None:
    good, bad = (Block("page:1", "cpp", f"{START}#include <vulkan/vulkan.h>\n{name} device;\n")
                 for name in ("VkDevice", "VkDevise"))
    assert [compile_cpp(block, tmp_path).returncode for block in (good, bad)] == [0, 1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_block_names_a_known_language(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    found = blocks(text, page.name)
    assert len(found) * 2 == len(re.findall(r"^ *```", text, re.MULTILINE))
    assert [(block.where, block.language) for block in found if block.language not in LANGUAGES] == []


def unknown_comments(text: str) -> list[str]:
    """Return the comments before blocks that have no meaning, for example one with a spelling mistake."""
    before = re.findall(r"^ *(<!--[^\n]*-->)\n+ *```", text, re.MULTILINE)
    return [each for each in before if not re.fullmatch(COMMENT, each)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_comments_before_blocks_are_known(page: Path) -> None:
    assert unknown_comments(page.read_text(encoding="utf-8")) == []


def test_comment_with_a_spelling_mistake_is_detected() -> None:
    assert unknown_comments("<!-- output -->\n```text\n```\n\n<!-- outptu -->\n\n```text\n```\n") == ["<!-- outptu -->"]


def test_readme_is_short_and_its_programs_have_twelve_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150   # three screens
    on_gpu, on_cpu = [block for block in ALL if block.where.startswith("README.md") and block.language == "python"]
    assert (on_gpu.needs_gpu, on_cpu.needs_gpu) == (True, False)
    assert on_cpu.output
    for block in (on_gpu, on_cpu):
        lines = block.program.partition(START)[2].removeprefix("# needs a GPU\n").splitlines()
        assert len([line for line in lines if line.strip()]) <= 12


def test_readme_begins_with_a_description_and_the_two_commands() -> None:
    title, description, commands = re.split(r"\n\n", (ROOT / "README.md").read_text())[:3]
    assert (title, description[:10]) == ("# xsem", "A renderer")
    assert [line.partition("#")[0].strip() for line in commands.splitlines()[1:-1]] == ["make demo", "make test"]


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
    assert run(good, tmp_path) == [(good, 0, "so\n")]
    [(_, status, said)] = run(bad, tmp_path)
    assert status == 1
    assert "assert value == 2" in said


def test_program_runs_beside_a_block_and_its_output_is_compared(tmp_path: Path) -> None:
    server, client, shown, other = blocks("""
<!-- file server.py -->
```python
import socket
server = socket.socket(socket.AF_UNIX)
server.bind("server")
server.listen()
print("listening")
client, _ = server.accept()
print(client.recv(9).decode())
client.close()
server.close()
```
```python
import socket
with socket.socket(socket.AF_UNIX) as client:
    client.connect("server")
    client.sendall(b"a word")
```
<!-- output -->
```text
more
```
<!-- output server.py -->
```text
listening
... word
```
""", "page")
    assert [block.language for block in (server, client, shown, other)] == ["python", "python", "text", "text"]
    done = run(client, tmp_path)
    assert [(each.file, status, said) for each, status, said in done] == [
        ("block.py", 0, ""), ("server.py", 0, "listening\na word\n")]
    assert [as_shown(each, said) for each, _, said in done] == [False, True]
    with pytest.raises(AssertionError, match="needs a block that runs beside it"):
        blocks("<!-- file alone.py -->\n```python\n```\n", "page")
    with pytest.raises(AssertionError, match="page:2 is the output of no program"):
        blocks("<!-- output -->\n```text\n```\n", "page")


def test_block_runs_on_the_stand_in_for_libcuda(tmp_path: Path) -> None:
    program = 'import ctypes\nctypes.CDLL("libcuda.so.1").simcuda_fail(None, None)\n'
    here, there = blocks(f"```python\n{program}```\n<!-- on cuda -->\n```python\n{program}```\n", "page")
    assert [run(block, tmp_path)[0][1] for block in (here, there)] == [1, 0]


@pytest.mark.slow
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


def work_without_a_word(text: str) -> list[str]:
    """Return the calls of append_work near which nothing says what the function does on a GPU."""
    lines, word = text.splitlines(), r"GPU|CUDA|host only|[Ee]nqueue|[Ll]aunch"
    return [line.strip() for number, line in enumerate(lines) if re.search(r"(?<!queue)\.append_work\(", line)
            and not re.search(word, "\n".join(lines[max(0, number - 4):number + 2]))]


def test_work_that_is_right_only_on_host_says_so() -> None:
    assert work_without_a_word("commands.append_work(lambda: print(image.mean()))")
    unmarked = [(block.where, line) for block in ALL if block.language == "python"
                for line in work_without_a_word(block.program.partition(START)[2])]
    unmarked += [(str(path), line) for path in sorted((ROOT / "examples").rglob("*.py"))
                 for line in work_without_a_word(path.read_text())]
    assert unmarked == []
