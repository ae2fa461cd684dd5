"""The commands of README, CONTRIBUTING.md and docs run, and their data can be read.

The commands of a console block run one after the other, as they stand, in a folder of their own that looks like a
clone. `NOT_RUN` lists the commands that cannot run in a test, each with its reason. The names in a command are checked
in both cases: the targets of make, the files, the extras, and the commands and options of xsem.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Final

import pytest
import yaml
from support.doc_blocks import ALL, START, Block, as_parameters, as_shown, blocks
from support.paths import ROOT

from xsem.cli import package_commands
from xsem.cli.options import new_parser
from xsem_conformance import baseline, profiles, waivers

NOT_RUN: Final = {
    r"make .*|\.ci/run": "it takes minutes; CI runs each target",
    r"python tools/(api|reasons)\.py .*": "it writes into the tree; tests/project compares what it would write",
    r"\.ci/(wheels|try-wheels)": "it needs Docker; the workflow of a release runs it",
    r"git tag .*": "it publishes a release",
    r"python tools/suite_data\.py .*": "it writes into the tree; tests/conformance compares what it would write",
    r"tools/windows/run .*": "it needs CPython for Windows and Wine; CI runs it",
    r"tools/gpu-records .*|nvidia-cuda-mps-control -d|python benchmarks/(run|handover)\.py.*": "it needs an NVIDIA GPU",
    r"xsem (demo|conformance run) --device cuda:0 --exporter .*": "it needs an NVIDIA GPU",
    r"docker run .*": "it needs Docker and two images",
    r"python examples/asyncio_server\.py --exporter vulkan --device cuda:0": "it needs an NVIDIA GPU",
    r"python examples/torch_trainer\.py .*": "it needs an NVIDIA GPU and torch",
    r"python examples/image_frames\.py --frames 30": "it needs an NVIDIA GPU and torch",
    r"python examples/image_frames\.py --device vulkan:0 --array numpy": "it needs a Vulkan driver",
    r"python examples/opengl_torch\.py": "it needs an NVIDIA GPU and torch",
    r"tests/drivers/(swiftshader|zink) -- .*": "it downloads a driver; tests/backends and tests/examples use it",
    r"(XSEM_COMPILE=1 )?(\S+/)?pip install .*": "it changes the environment; tests/project/test_wheel.py installs xsem",
    r"python3 -m venv \S+.*": "an environment without xsem; tests/project/test_wheel.py makes one",
    r"\. ~/try-xsem/bin/activate": "it needs the environment of the line before",
    r"(xsem conformance run|pytest -p xsem_conformance\.pytest_plugin --xsem-device|.* --device) acme:0 .*":
        "the reader's backend; tests/backends/test_template.py runs the suite on the template",
    r"cd \.\.|cd xsem-acme|pytest": "the reader's backend; tests/backends/test_template.py runs the template's tests",
    r"tests/drivers/run cuda -- python -m pytest /path/to/your/tests|.* python your_program\.py":
        "the reader's program",
    r"xsem trace show traces .*": "the traces of the reader; tests/cli/test_trace_show.py shows those of the page",
    r"xsem trace -- python .*|XSEM_TRACE=traces (XSEM_TRACE_DEVICE_TIMES=1 )?python .*": "the program of the reader",
    r"xsem pending --all": "it tells of the other programs of this machine",
    r"python (viewer|renderer)\.py( &)?|sleep 1|wait|rm frames\.sock":
        "tests/project/test_docs.py runs the programs of the page",
}
"""Patterns of the commands that no test runs, each with the reason."""

CONSOLES: Final = [block for block in ALL if block.language == "console"]


def commands(block: Block) -> list[str]:
    """Return the commands of a block, without comments."""
    text = block.program.partition(START)[2].replace("\\\n", " ")
    return [line for each in text.splitlines() if (line := re.sub(r"(^|\s+)#( .*|$)", "", each).strip())]


def runs(command: str) -> bool:
    return not any(re.fullmatch(pattern, command) for pattern in NOT_RUN)


def clone(folder: Path) -> None:
    """Make a folder look like a clone, with reports of an earlier run."""
    for name in ("Makefile", "conformance", "examples", "pyproject.toml", "tests", "tools"):
        (folder / name).symlink_to(ROOT / name)
    report = ROOT / "records" / "nvidia-h200" / "conformance-cuda.json"
    for name in ("a", "b", "new", "old"):
        shutil.copy(report, folder / f"{name}.json")


def run(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the commands of a block, up to the first that fails."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "XSEM"))}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}", "HOME": str(folder),
                    "COLUMNS": "200", "NO_COLOR": "1"}
    script = "\n".join(["set -euo pipefail", *filter(runs, commands(block))])
    return subprocess.run(["bash", "-c", script], cwd=folder, env=environment, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=110, check=False)


@pytest.mark.parametrize("block", as_parameters(block for block in CONSOLES if any(map(runs, commands(block)))))
def test_commands_of_a_block_run(block: Block, tmp_path: Path) -> None:
    clone(tmp_path)
    done = run(block, tmp_path)
    assert done.returncode == 0, done.stdout
    assert as_shown(block, done.stdout), f"{block.where} shows\n{block.output}\nand the commands print\n{done.stdout}"


def test_reasons_belong_to_commands() -> None:
    every = [command for block in CONSOLES for command in commands(block)]
    assert [pattern for pattern in NOT_RUN if not any(re.fullmatch(pattern, command) for command in every)] == []


@pytest.mark.slow
def test_failing_command_is_detected(tmp_path: Path) -> None:
    good, bad = blocks("""
```console
xsem devices --quiet   # a comment
cd ..
```
```console
xsem devices --quiet
xsem nothing
xsem --version
```
""", "page")
    assert commands(good) == ["xsem devices --quiet", "cd .."]
    done = run(good, tmp_path)
    assert done.returncode == 0
    assert "host:0" in done.stdout
    assert run(bad, tmp_path).returncode == 2


# ---- names in commands
def wrong_names(command: str) -> Iterator[str]:
    """Yield a message for each name in a command that does not exist."""
    words = shlex.split(command)
    for index, word in enumerate(words):
        rest = list(takewhile(lambda each: each not in {"&&", "&", ";"}, words[index + 1:]))
        if word == "xsem":
            yield from _wrong_options(rest)
        elif word == "make":
            targets = re.findall(r"^([\w\- ]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            if rest[0] not in " ".join(targets).split():
                yield f"the Makefile has no target {rest[0]}"
        elif re.match(r"(examples|tests|tools)/", word):
            path = ROOT / word
            if not path.exists():
                yield f"{word} does not exist"
            elif path.suffix == ".py" and path.parent.name == "examples":
                yield from (f"{word} has no option {each}" for each in rest
                            if each.startswith("-") and f'"{each}"' not in path.read_text(encoding="utf-8"))
        elif "pytest" in word and rest[:2] == ["-p", "xsem_conformance.pytest_plugin"]:
            plugin = (ROOT / "conformance" / "xsem_conformance" / "pytest_plugin.py").read_text(encoding="utf-8")
            yield from (f"the plugin of pytest has no option {each}" for each in rest
                        if each.startswith("--") and f'"{each}"' not in plugin)
    for extra in re.findall(r"pip install .*\[([\w,]+)\]", command):
        yield from (f"no package has the extra {each}" for each in extra.split(",") if each not in _extras())


def _wrong_options(words: list[str]) -> Iterator[str]:
    if words[:1] == ["trace"] and "--" in words:   # what follows is another program
        words = words[:words.index("--")]
    try:
        asked = new_parser(package_commands.names().items(), package_commands.load).parse_args(words)
    except SystemExit as end:
        if end.code:
            yield f"xsem {shlex.join(words)} is a usage error"
        return
    if getattr(asked, "profile", "") not in ("", *profiles.profiles()):
        yield f"the suite has no profile {asked.profile}"


def _extras() -> set[str]:
    found: set[str] = set()
    for path in (ROOT / "pyproject.toml", ROOT / "examples" / "backend-template" / "pyproject.toml"):
        found |= tomllib.loads(path.read_text(encoding="utf-8"))["project"]["optional-dependencies"].keys()
    return found


@pytest.mark.parametrize("block", CONSOLES, ids=lambda block: block.where)
def test_names_in_commands_exist(block: Block) -> None:
    assert [message for command in commands(block) for message in wrong_names(command)] == []


@pytest.mark.parametrize(("command", "message"), [
    ("make demos", "the Makefile has no target demos"),
    ("xsem demo --device cuda:0 --frame 3", "xsem demo --device cuda:0 --frame 3 is a usage error"),
    ("xsem conformance runs --device x", "xsem conformance runs --device x is a usage error"),
    ("tests/drivers/run cuda -- xsem conformance run --devices x", "xsem conformance run --devices x is a usage error"),
    ("xsem conformance run --profile fuller", "the suite has no profile fuller"),
    ("python examples/nothing.py", "examples/nothing.py does not exist"),
    ("python examples/image_frames.py --frame 30", "examples/image_frames.py has no option --frame"),
    ("pytest -p xsem_conformance.pytest_plugin --xsem-devices x", "the plugin of pytest has no option --xsem-devices"),
    ("python3 -m venv x && pip install '.[cuda11]'", "no package has the extra cuda11"),
])
def test_wrong_name_in_a_command_is_detected(command: str, message: str) -> None:
    assert list(wrong_names(command)) == [message]


# ---- data
def check_data(block: Block, folder: Path) -> None:
    """Read a block of data. Waivers and a baseline must be valid, and so must the commands of a workflow."""
    text = block.program.partition(START)[2]
    if block.language == "toml":
        if "waiver" in tomllib.loads(text):
            path = folder / "waivers.toml"
            path.write_text(text)
            assert waivers.load(path)
        if "expected" in tomllib.loads(text):
            path = folder / "baseline.toml"
            path.write_text(text)
            assert baseline.load(path)
        return
    read = yaml.safe_load(text)
    steps = [step for job in read["jobs"].values() for step in job["steps"]]
    for step in steps:
        assert step.keys() & {"run", "uses"}
        # An expression of the workflow is a word.
        command = re.sub(r"\$\{\{.*?\}\}", "expression", step.get("run", ""))
        assert list(wrong_names(command)) == []


@pytest.mark.parametrize("block", [block for block in ALL if block.language in {"toml", "yaml"}],
                         ids=lambda block: block.where)
def test_data_of_a_block_is_valid(block: Block, tmp_path: Path) -> None:
    check_data(block, tmp_path)


@pytest.mark.parametrize(("language", "text"), [
    ("toml", "[[waiver]\n"), ("toml", '[[expected]]\nrequirement = "XSEM-BIN-004"\n'),
    ("toml", '[[waiver]]\ncase = "XSEM-BIN-004/*"\n'), ("yaml", "jobs: [\n"),
    ("yaml", "jobs: {suite: {steps: [{run: xsem conformance run --devices x}]}}\n"),
    ("yaml", "jobs: {suite: {steps: [{runs: xsem doctor}]}}\n"),
])
def test_wrong_data_of_a_block_is_detected(language: str, text: str, tmp_path: Path) -> None:
    [block] = blocks(f"```{language}\n{text}```\n", "page")
    with pytest.raises((ValueError, AssertionError, yaml.YAMLError)):
        check_data(block, tmp_path)
