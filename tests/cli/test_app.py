"""The command line: statuses, JSON, plugins that fail."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.paths import ROOT
from support.plugin_folder import write_plugin

from xsem import __version__
from xsem.cli import package_commands
from xsem.cli.options import new_parser
from xsem.spi import compiled


def xsem(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "xsem", *arguments], capture_output=True, text=True, check=False,
                          timeout=50, env={**os.environ, "NO_COLOR": "1", **environment}, stdin=subprocess.DEVNULL)


def test_version_and_help() -> None:
    assert xsem("--version").stdout.startswith("xsem ")
    for command in ((), ("devices",), ("doctor",), ("demo",), ("trace",), ("trace", "show"), ("conformance",),
                    ("conformance", "run")):
        for option in ("--help", "-h"):
            done = xsem(*command, option)
            assert (done.returncode, done.stderr) == (0, "")
            assert "usage" in done.stdout.lower()
            assert "--no-color" in done.stdout
    assert "conformance" in xsem("-h").stdout


def parsers() -> Iterator[argparse.ArgumentParser]:
    """Yield the parser of each command, and of each command of a group."""
    waiting = [new_parser(package_commands.names().items(), package_commands.load)]
    for parser in waiting:
        yield parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                waiting += action.choices.values()


def test_help_of_each_command_fits_80_columns_and_breaks_no_name_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = {parser.prog: re.sub(r"\x1b\[\d+(;\d+)*m", "", parser.format_help()) for parser in parsers()}
    assert {"xsem", "xsem trace show", "xsem conformance run"} < found.keys()
    for name, text in found.items():
        lines = text.splitlines()
        assert lines[0].startswith(f"usage: {name} "), lines[0]
        assert lines.index("", 1) <= 3, text   # the usage
        assert max(map(len, lines)) <= 80, name
        assert "  COMMAND\n" not in text
        # A name of an option or a command, and its meaning on the next line.
        assert not re.search(r"^ {2,4}-?[^ \n](?:[^ \n]| (?! ))*\n {10}", text.partition("\n\n")[2], re.MULTILINE), text


def test_help_of_the_program_has_the_environment_and_the_exit_statuses() -> None:
    text = xsem("-h").stdout
    statuses = re.findall(r"^  (\d+) {2}", text, re.MULTILINE)
    page = (ROOT / "docs" / "reference" / "command-line.md").read_text()
    assert statuses == re.findall(r"^\| (\d+) \|", page, re.MULTILINE) == ["0", "1", "2", "3", "130", "141"]
    read = {each for path in (ROOT / "xsem").rglob("*.py") for each in re.findall(r'"((?:XSEM|NO|FORCE)_[A-Z_]+)"',
                                                                                  path.read_text())}
    assert set(re.findall(r"^  ([A-Z_]+)=", text, re.MULTILINE)) == read


@pytest.mark.variants
@pytest.mark.parametrize("arguments", [["--version", "--json"], ["--json", "--version"]])
def test_version_as_json(arguments: list[str]) -> None:
    assert json.loads(xsem(*arguments).stdout) == {"schema": 1, "version": __version__}


@pytest.mark.variants
@pytest.mark.parametrize("arguments", [["nonsense"], [], ["demo", "--frames", "x"], ["demo", "--frames", "0"],
                                       ["devices", "--patience", "nan"], ["devices", "more"], ["devices", "--js"]])
def test_usage_errors_end_with_2(arguments: list[str]) -> None:
    done = xsem(*arguments)
    assert done.returncode == 2
    assert done.stderr if arguments else done.stdout


@pytest.mark.parametrize(("arguments", "said"), [
    ("conformence", "argument COMMAND: 'conformence' does not exist: did you mean conformance?; see `xsem -h`"),
    ("trace", ""),
    ("conformance lst", "argument COMMAND: 'lst' does not exist: did you mean list?; see `xsem conformance -h`"),
    ("conformance run --devic=host", "unknown option --devic: did you mean --device?; see `xsem conformance run -h`"),
    ("devices more", "unexpected argument 'more'; see `xsem devices -h`"),
])
def test_usage_error_is_one_line_with_what_is_meant(arguments: str, said: str) -> None:
    assert xsem(*arguments.split()).stderr == (f"xsem: {said}\n" if said else "")


@pytest.mark.variants
@pytest.mark.parametrize("arguments", [["--quiet", "devices"], ["devices", "-q"]])
def test_quiet_devices_are_names(arguments: list[str]) -> None:
    assert xsem(*arguments, XSEM_BACKENDS="host").stdout == "host:0\n"


@pytest.mark.variants
@pytest.mark.parametrize("arguments", [
    ["--json", "conformance", "list"], ["conformance", "--json", "list"], ["conformance", "list", "--json"],
    ["conformance", "--no-color", "--json", "-q", "list"], ["-q", "conformance", "--json", "list", "--no-color"]])
def test_flags_stand_at_each_place_of_a_group(arguments: list[str]) -> None:
    done = xsem(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["schema"] == 1


def test_quiet_doctor_is_one_sentence() -> None:
    assert xsem("doctor", "--quiet", XSEM_BACKENDS="host").stdout == "host works\n"


@pytest.mark.variants
@pytest.mark.parametrize("arguments", [["--no-color", "doctor"], ["doctor", "--no-color"], ["doctor"]])
def test_colours_only_without_no_color(arguments: list[str]) -> None:
    done = xsem(*arguments, XSEM_BACKENDS="host", FORCE_COLOR="1", NO_COLOR="")
    assert ("\x1b[1m" in done.stdout) == (arguments == ["doctor"])


def test_devices_json_lists_declared_capabilities() -> None:
    done = xsem("devices", "--json", XSEM_BACKENDS="host")
    assert done.returncode == 0
    listed = json.loads(done.stdout)
    assert listed["schema"] == 1
    (device,) = [each for each in listed["devices"] if each["id"] == "host:0"]
    assert device["uuid"] is None
    assert device["problem"] is None
    assert device["capabilities"]["semaphore_import"] == ["host_timeline_fd", "opaque_fd", "timeline_semaphore_fd"]
    assert device["capabilities"]["resets_on_wait"] is True


def test_devices_as_a_table() -> None:
    done = xsem("devices", XSEM_BACKENDS="host")
    assert done.returncode == 0
    assert "host:0" in done.stdout
    assert "timeline_semaphore_fd (in, out)" in done.stdout
    assert "\x1b" not in done.stdout


def test_doctor_reports_selected_backends_only() -> None:
    done = xsem("doctor", XSEM_BACKENDS="host")
    assert done.returncode == 0, done.stdout
    assert "host:0" in done.stdout
    assert "opencl" not in done.stdout
    answer = json.loads(xsem("doctor", "--json", XSEM_BACKENDS="host").stdout)
    assert [each["name"] for each in answer["backends"] if each["works"]] == ["host"]
    assert not answer["absent"]


@pytest.mark.variants
@pytest.mark.parametrize("pure", [False, True])
def test_doctor_tells_whether_the_append_path_is_compiled(pure: bool) -> None:
    environment = {"XSEM_BACKENDS": "host"} | ({"XSEM_PURE": "1"} if pure else {})
    expected = "compiled" if compiled() and not pure else "pure Python"
    assert f"append path: {expected}\n" in xsem("doctor", **environment).stdout
    checks = {check["name"]: check for check in json.loads(xsem("doctor", "--json", **environment).stdout)["general"]}
    assert checks["append path"]["ok"]
    assert checks["append path"]["detail"] == expected


def unavailable_cuda(**environment: str) -> str:
    """Return why `devices` says that the backend cuda is unavailable. All other output must be as usual."""
    done = xsem("devices", "--json", **environment)
    assert done.returncode == 0, done.stderr
    listed = json.loads(done.stdout)
    assert [each["id"] for each in listed["devices"] if each["backend"] in ("cuda", "host")] == ["host:0"]
    (cuda,) = [each for each in listed["backends"] if each["name"] == "cuda"]
    reason = cuda["unavailable"]
    assert isinstance(reason, str)
    doctor = xsem("doctor", **environment)
    assert reason in doctor.stdout
    advice, _, checks = doctor.stdout.partition("\ngeneral\n")
    assert "host" in advice.partition(" work")[0]
    assert "cuda" in advice.splitlines()[0].partition("work; ")[2].partition(" lack")[0]
    assert "\n- to use NVIDIA GPUs (cuda): " in advice
    assert "BAD" not in checks.partition("\ncuda\n")[2].partition("\nhost\n")[0]
    assert xsem("devices", XSEM_BACKENDS="cuda", **environment).returncode == 3
    return reason


def test_cuda_is_unavailable_when_libcuda_is_missing() -> None:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        reason = unavailable_cuda()
        assert "libcuda.so.1 was not found" in reason
        assert "install the NVIDIA driver" in reason
    else:
        pytest.skip("libcuda.so.1 is here")


@pytest.mark.slow
def test_cuda_is_unavailable_when_cuda_bindings_is_missing(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "__init__.py").touch()   # hides the namespace package of cuda-bindings
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    reason = unavailable_cuda(PYTHONPATH=path)
    assert "pip install 'xsem[cuda13]'" in reason


def test_unknown_name_in_the_environment_is_a_usage_error() -> None:
    done = xsem("devices", XSEM_BACKENDS="host,nosuch")
    assert done.returncode == 2
    assert "nosuch" in done.stderr


def broken_plugin(folder: Path, source: str) -> str:
    write_plugin(folder, "acme", source)
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.mark.slow
def test_plugin_that_fails_to_import_is_reported(tmp_path: Path) -> None:
    path = broken_plugin(tmp_path, "raise OSError('libacme.so: cannot open')")
    done = xsem("devices", "--json", PYTHONPATH=path)
    assert done.returncode == 0
    listed = json.loads(done.stdout)
    (acme,) = [each for each in listed["backends"] if each["name"] == "acme"]
    assert "libacme.so" in acme["unavailable"]
    assert acme["distribution"] == "acme 1.0"
    assert any(each["id"] == "host:0" for each in listed["devices"])
    assert xsem("doctor", PYTHONPATH=path).returncode == 1
    assert xsem("doctor", PYTHONPATH=path, XSEM_BACKENDS="host").returncode == 0
    alone = xsem("devices", PYTHONPATH=path, XSEM_BACKENDS="acme")
    assert alone.returncode == 3
    assert "libacme.so" in alone.stdout


@pytest.mark.variants
@pytest.mark.parametrize(("line", "found"), [
    ("xsem de", ["demo", "devices"]), ("xsem conformance m", ["matrix"]),
    ("xsem conformance run --max", ["--max-failures", "--max-hangs"])])
def test_completion_knows_the_commands_and_options(tmp_path: Path, line: str, found: list[str]) -> None:
    xsem(_ARGCOMPLETE="1", _ARGCOMPLETE_STDOUT_FILENAME=str(tmp_path / "words"), COMP_LINE=line,
         COMP_POINT=str(len(line)))
    assert sorted(each.strip() for each in (tmp_path / "words").read_text().split("\x0b")) == found
