"""`xsem conformance`: the options of every command, --help, --json and --quiet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import command_line
from support.paths import ROOT

from xsem_conformance.profiles import profiles
from xsem_conformance.requirements import load

REPORT = str(ROOT / "records" / "nvidia-h200" / "conformance-opencl.json")
OTHER = str(ROOT / "records" / "nvidia-h200" / "conformance-cuda.json")
RUN = ("run", "--only", "XSEM-BUF-006")


def called(*arguments: str) -> str:
    done = command_line.called("conformance", *arguments)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.variants
@pytest.mark.parametrize(("arguments", "result"), [
    (("show", "core"), profiles()["core"].text),
    (RUN, "conformance of host with host: meets the requirements that were tried; a part of core"),
    (("show", "XSEM-BUF-006"), load().requirements["XSEM-BUF-006"].text),
    (("compare", REPORT, REPORT), "the second report is not worse: 0 worse, 0 better, 0 new, 0 gone"),
    (("list", "--area", "BUF"), "\n".join(each for each in load().requirements if "-BUF-" in each)),
], ids=lambda value: value[0] if isinstance(value, tuple) else "")
def test_quiet_prints_only_the_result(arguments: tuple[str, ...], result: str) -> None:
    assert called(*arguments, "--quiet") == f"{result}\n"
    if arguments[0] != "compare":   # two equal reports differ in nothing
        assert called(*arguments) != f"{result}\n"


def test_verdicts_of_a_comparison_and_of_a_matrix_are_the_first_lines() -> None:
    for arguments, count in ((("compare", REPORT, OTHER), 1), (("matrix", REPORT, OTHER), 2)):
        assert called(*arguments, "-q").splitlines() == called(*arguments).splitlines()[:count]


@pytest.mark.slow
def test_json_of_a_run_is_the_report(tmp_path: Path) -> None:
    found = json.loads(called(*RUN, "--json", "--report", str(tmp_path / "report.json")))
    assert [each["outcome"] for each in found["cases"]] == ["PASS"]
    written = json.loads((tmp_path / "report.json").read_text())
    assert {name for name in found if found[name] != written[name]} == set()


def test_new_backend_prints_its_folder_or_its_files(tmp_path: Path) -> None:
    assert called("new-backend", "acme", "--folder", str(tmp_path / "a"), "-q") == f"{tmp_path / 'a'}\n"
    found = json.loads(called("new-backend", "acme", "--folder", str(tmp_path / "b"), "--json"))
    assert found["folder"] == str(tmp_path / "b")
    assert "pyproject.toml" in found["files"]
    assert all((tmp_path / "b" / each).is_file() for each in found["files"])
