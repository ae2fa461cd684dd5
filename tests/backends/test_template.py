"""Test the template of a backend from its wheel and xsem's, outside the clone, as its author installs it."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import contracts
import pytest
from support.paths import ROOT
from support.plugin_folder import NOTHING, clean_environment, write_plugin

from xsem_conformance.profiles import profiles

TEMPLATE = ROOT / "examples" / "backend-template"
# The template's declarations let this number of cases run. A lower number means that the suite skips cases.
FEWEST_PASSED = 80


def run(
    *command: str | Path, cwd: Path, path: tuple[Path, ...] = (), **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *map(str, command)], cwd=cwd, env=clean_environment(*path) | more, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=55,
                          check=False)


def build(source: Path, *names: str, to: Path) -> None:
    """Build a wheel from a copy, so that other files of the tree neither help the build nor get into the wheel."""
    copy = to / f"source of {source.name}"
    for name in names:
        if (source / name).is_dir():
            shutil.copytree(source / name, copy / name,
                            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so"))
        else:
            shutil.copy(source / name, copy)
    done = run("-m", "hatchling", "build", "-t", "wheel", "-d", to, cwd=copy)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install both wheels into a folder; their dependencies come from this environment."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    build(ROOT, "xsem", "backends", "conformance", "examples/backend-template", "pyproject.toml", "hatch_build.py",
          "README.md", "LICENSE", to=wheels)
    build(TEMPLATE, "xsem_toy", "pyproject.toml", "README.md", to=wheels)
    both = sorted(wheels.glob("*.whl"))
    assert [each.name.partition("-")[0] for each in both] == ["xsem", "xsem_toy"]
    install(*both, to=site)
    return site


def install(*wheels: Path, to: Path) -> None:
    done = run("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--target", to, *wheels,
               "--disable-pip-version-check", cwd=to)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="module")
def written(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Let the installed command write the project of a backend, and install the project into the folder `site`."""
    folder = tmp_path_factory.mktemp("written")
    done = run("-m", "xsem", "conformance", "new-backend", "big_gpu", cwd=folder, path=(installed,))
    assert done.returncode == 0, done.stdout
    (folder / "site").mkdir()
    build(folder / "xsem-big-gpu", "xsem_big_gpu", "pyproject.toml", "README.md", to=folder)
    install(*folder.glob("*.whl"), to=folder / "site")
    return folder


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Make a folder with a configuration with which pytest does not start."""
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\nminversion = 99\n")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-p no_such_plugin"\n')
    (tmp_path / "tox.ini").write_text("[pytest]\npython_files = nothing.py\n")
    (tmp_path / "conftest.py").write_text("raise SystemExit('this conftest.py is never loaded')\n")
    (tmp_path / "test_broken.py").write_text("raise SystemExit('nor is this test')\n")
    return tmp_path


def outcomes(said: str) -> dict[str, int]:
    """Return the totals of the table: the number of cases in each state."""
    head, = re.findall(r"^ +(cases .*)$", said, re.MULTILINE)
    row, = re.findall(r"^total +(.*)$", said, re.MULTILINE)
    return dict(zip(re.split(r"  +", head.strip()), map(int, row.split()), strict=True))


@pytest.mark.slow
def test_installed_template_and_xsem_are_used(installed: Path, hostile: Path) -> None:
    done = run("-c", """
import json, xsem, xsem_conformance, xsem_toy
print(json.dumps([each.__file__ for each in (xsem, xsem_conformance, xsem_toy)]))
print(json.dumps([each.id for each in xsem.devices("toy")]))
""", cwd=hostile, path=(installed,))
    assert done.returncode == 0, done.stdout
    files, devices = map(json.loads, done.stdout.splitlines())
    assert all(Path(each).is_relative_to(installed) for each in files)
    assert devices == ["toy:0"]


@pytest.mark.slow
def test_template_passes_core_profile_in_hostile_configuration(installed: Path, hostile: Path) -> None:
    done = run("-m", "xsem", "conformance", "run", "--device", "toy:0", "--exporter", "host", "--profile", "core",
               cwd=hostile, path=(installed,))
    assert done.returncode == 0, done.stdout
    counts = outcomes(done.stdout)
    assert counts["met"] >= FEWEST_PASSED
    assert counts.keys() == {"cases", "met", "not met", "not declared"}
    assert counts["not met"] == 0


@pytest.mark.slow
def test_template_does_not_pass_what_it_does_not_declare(installed: Path, hostile: Path) -> None:
    done = run("-m", "xsem", "conformance", "run", "--device", "toy:0", "--exporter", "host", "--profile", "timeline",
               "--no-quirks", cwd=hostile, path=(installed,))
    assert done.returncode == 1, done.stdout
    assert "profile timeline: declares none of semaphore_import:timeline_semaphore_fd" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("profile", profiles())
def test_backend_that_declares_nothing_passes_no_profile(installed: Path, hostile: Path, profile: str) -> None:
    plugins = write_plugin(hostile / "plugins", "nothing", NOTHING)
    done = run("-m", "xsem", "conformance", "run", "--device", "nothing:0", "--exporter", "host", "--profile", profile,
               "--no-quirks", cwd=hostile, path=(plugins, installed))
    assert done.returncode == 1, done.stdout
    assert f"profile {profile}: declares none of " in done.stdout
    assert outcomes(done.stdout)["not met"] == 0   # the backend does what it declares, and the profile wants more


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_workflow_of_a_written_project_passes(written: Path, installed: Path) -> None:
    project = written / "xsem-big-gpu"
    workflow = (project / ".github" / "workflows" / "conformance.yml").read_text()
    first, *commands = re.findall(r"^ +- run: (.+)$", workflow, re.MULTILINE)
    assert first == "python -m pip install -e '.[test]'"   # here, the wheels are installed
    assert [each.split()[:3] for each in commands] == [
        ["xsem", "devices"], ["python", "-m", "pytest"], ["xsem", "conformance", "run"]]
    path = os.pathsep.join([str(installed / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    said = ""
    for command in commands:
        done = subprocess.run(shlex.split(command), cwd=project, text=True, stdin=subprocess.DEVNULL, timeout=100,
                              env=clean_environment(written / "site", installed) | {"PATH": path}, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == 0, done.stdout
        said += done.stdout
    assert "big_gpu:0" in said
    assert "4 passed" in said
    assert "conformance of big_gpu:0 with host: conforms to core" in said
    assert outcomes(said)["met"] >= FEWEST_PASSED
    report = json.loads((project / "report.json").read_text())
    assert report["code"]["package"] == "xsem_big_gpu"
    assert [each["name"].partition(" ")[0] for each in report["code"]["libraries"]] == ["Linux"]


def test_template_imports_the_modules_allowed_for_a_backend() -> None:
    seen: set[str] = set()
    for file in (TEMPLATE / "xsem_toy").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                seen |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom):
                seen.add(node.module or "")
    assert {each for each in seen if each.partition(".")[0] == "xsem"} <= set(contracts.ALLOWED_IN_BACKENDS)
    assert not {each for each in seen if each.startswith("xsem_") and not each.startswith("xsem_toy")}
