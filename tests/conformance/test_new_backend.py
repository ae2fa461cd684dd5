"""`xsem conformance new-backend`: the written project, and what the command refuses."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from support.command_line import called
from support.paths import ROOT

import hatch_build

new_backend = importlib.import_module("xsem_conformance.cli.new_backend")   # the package has the function
TEMPLATE = ROOT / "examples" / "backend-template"


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "xsem", "conformance", "new-backend", *arguments], cwd=cwd, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=50, check=False,
                          env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"})


def files(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_project_has_the_name_everywhere(tmp_path: Path) -> None:
    done = run("big_gpu", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "xsem conformance run --device big_gpu:0" in done.stdout
    written = files(tmp_path / "xsem-big-gpu")
    assert set(written) == {
        ".github/workflows/conformance.yml", "README.md", "pyproject.toml", "tests/test_big_gpu.py",
        *(f"xsem_big_gpu/{each}.py" for each in ("__init__", "backend", "device", "eventfd", "queues"))}
    for name, text in written.items():
        assert "toy" not in text.lower(), name
        if name.endswith(".py"):
            ast.parse(text)
    assert "class BigGpuBackend(Backend):" in written["xsem_big_gpu/backend.py"]
    project = tomllib.loads(written["pyproject.toml"])
    assert project["project"]["name"] == "xsem-big-gpu"
    assert project["project"]["entry-points"]["xsem"] == {"big_gpu": "xsem_big_gpu"}
    assert "--device big_gpu:0" in written[".github/workflows/conformance.yml"]


def test_command_and_wheel_have_the_same_files() -> None:
    here = {str(path) for path, _ in new_backend._template()}
    in_wheel = {each.removeprefix("xsem_conformance/backend_template/") for each in hatch_build.template().values()}
    listed = subprocess.run(["git", "ls-files", "."], cwd=TEMPLATE, capture_output=True, text=True, check=True).stdout
    assert here == in_wheel == set(listed.split())


def test_caches_beside_the_template_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.py", "__pycache__/a.pyc", ".pytest_cache/x", "dist/a.whl", "xsem_toy.egg-info/PKG-INFO",
                 ".github/workflows/a.yml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setattr(new_backend, "_folders", lambda: (tmp_path / "no", tmp_path))
    assert [str(path) for path, _ in new_backend._template()] == [".github/workflows/a.yml", "a.py"]


@pytest.mark.variants
@pytest.mark.parametrize("name", ["../a", "", "Acme", "9a", "a-b", "a b", "a__b", "_a", "a_", "a.b", "é", "a\n",
                                  "a" * 33])
def test_bad_name_is_refused(tmp_path: Path, name: str) -> None:
    done = run("--", name, cwd=tmp_path)
    assert done.returncode == 2
    assert "is not a name of a backend" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.variants
@pytest.mark.parametrize("name", ["host", "cuda", "conformance"])
def test_name_of_an_installed_package_is_refused(tmp_path: Path, name: str) -> None:
    done = run(name, cwd=tmp_path)
    assert done.returncode == 2
    assert f"'{name}' is the name of an installed package or backend" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.variants
@pytest.mark.parametrize(("name", "why"), [
    ("xsem", "a package of xsem"), ("spi", "a package of xsem"), ("os", "a module of Python"),
    ("types", "a package of xsem"), ("json", "a module of Python"), ("class", "a word of Python"),
    ("match", "a word of Python"), ("list", "a word of Python")])
def test_name_of_python_or_xsem_is_refused(tmp_path: Path, name: str, why: str) -> None:
    ended = called("conformance", "new-backend", name, "--folder", tmp_path / "here")
    assert ended.exit_code == 2
    assert f"'{name}' is the name of {why}" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_name_of_an_installed_distribution_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = metadata.Distribution
    monkeypatch.setattr(found, "from_name", classmethod(
        lambda cls, name: cls.at(tmp_path) if name == "xsem-big-gpu" else pytest.fail(name)))
    ended = called("conformance", "new-backend", "big_gpu", "--folder", tmp_path / "here")
    assert (ended.exit_code, "'big_gpu' is the name of an installed package" in ended.stderr) == (2, True)


@pytest.mark.variants
@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")],
                         ids=["folder", "file", "link"])
def test_existing_path_is_refused_and_unchanged(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "here")
    done = run("acme", "--folder", "here", cwd=tmp_path)
    assert done.returncode == 2
    assert "here exists already" in done.stderr
    assert [each.name for each in tmp_path.rglob("*")] == ["here"]


def test_folder_without_a_parent_is_refused(tmp_path: Path) -> None:
    done = run("acme", "--folder", "no/such", cwd=tmp_path)
    assert done.returncode == 2
    assert "no/such cannot be written: No such file or directory" in done.stderr


def test_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    ended = called("conformance", "new-backend", "acme", "--folder", tmp_path / "acme")
    assert (ended.exit_code, "No space left on device" in ended.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []
