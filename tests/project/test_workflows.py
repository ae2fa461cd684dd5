"""The lanes and the release: workflows run them on every Python of the package, `make help` is short."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import lint
import pytest
import yaml
from support.paths import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
LANES = {"push": ".ci/run", "nightly": "make nightly"}


def load(name: str) -> Any:
    return yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text(encoding="utf-8"))


def settings() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def versions() -> list[str]:
    return re.findall(r"Python :: (3\.\d+)", "\n".join(settings()["project"]["classifiers"]))


def test_workflows_are_those_of_the_lanes_and_the_release() -> None:
    assert {path.stem for path in WORKFLOWS.iterdir()} == {*LANES, "release"}


@pytest.mark.parametrize(("name", "lane"), LANES.items())
def test_workflow_runs_its_lane_on_every_python(name: str, lane: str) -> None:
    workflow = load(name)
    [job] = workflow["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == versions()
    [step] = [step for step in job["steps"] if step.get("run") == lane]
    assert step["env"] == {"PYTHON": "python${{ matrix.python }}"}
    assert job["container"]["image"].startswith("python:${{ matrix.python }}-")
    assert job["timeout-minutes"] <= 300
    assert workflow["permissions"] == {"contents": "read"}
    assert workflow["concurrency"]["group"].startswith(name)


def test_compiled_wheel_is_built_and_tried_for_every_python() -> None:
    build = settings()["tool"]["cibuildwheel"]["build"]
    assert build == [f"cp{version.replace('.', '')}-manylinux_x86_64" for version in versions()]
    script = (ROOT / ".ci" / "try-wheels").read_text(encoding="utf-8")
    tried = re.findall(r"^try (\w+):\S+ .* python(\S+) (True|False)", script, re.MULTILINE)
    assert [version for _, version, form in tried if form == "True"] == versions()
    assert len({distribution for distribution, *_ in tried}) >= 3


def test_release_publishes_only_a_tag_whose_wheels_work() -> None:
    release = load("release")
    assert release["permissions"] == {"contents": "read"}
    jobs = release["jobs"]
    assert [step["run"] for step in jobs["wheels"]["steps"] if "run" in step] == [".ci/wheels", ".ci/try-wheels"]
    assert {name: job.get("needs") for name, job in jobs.items()} == {
        "wheels": None, "publish": "wheels", "site": "publish"}
    assert jobs["publish"]["if"] == "github.ref_type == 'tag'"
    # Without a job's own "if", it does not run after a skipped one.
    assert "if" not in jobs["site"]
    assert {name: job.get("permissions") for name, job in jobs.items()} == {
        "wheels": None, "publish": {"id-token": "write"}, "site": {"contents": "write"}}


@pytest.mark.parametrize("folder", [".github", "examples/backend-template/.github"])
def test_linter_refuses_an_action_that_is_not_pinned(folder: str, tmp_path: Path) -> None:
    command, _ = lint.checks()["workflows"]
    for each in (".github", "examples/backend-template/.github"):
        shutil.copytree(ROOT / each, tmp_path / each)
    assert run(command, tmp_path).returncode == 0
    for path in (tmp_path / folder / "workflows").iterdir():
        path.write_text(re.sub(r"@[0-9a-f]{40} #", "@v4 #", path.read_text(encoding="utf-8")), encoding="utf-8")
    done = run(command, tmp_path)
    assert done.returncode == 14, done.stdout + done.stderr


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          check=False)


def test_help_lists_at_most_eight_targets() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    listed = re.findall(r"^make ([\w-]+)", done.stdout, re.MULTILINE)
    targets = re.findall(r"^([\w\- ]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"demo", "test", "lint", "site", "compiled", "nightly"} <= set(listed) <= set(" ".join(targets).split())
    assert len(listed) <= 8
