"""The completion scripts: bash runs its script here; zsh and fish run theirs where they are installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xsem.cli import app, completion, others
from xsem.errors import XsemError
from xsem_conformance import profiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="shells of Linux")

ASK = """
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
compopt() { :; }   # it works only during a completion
_xsem
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("completion")
    for shell in ("bash", "zsh", "fish"):
        (folder / f"xsem.{shell}").write_text(completion.script(shell))
    # The script runs this command for the names of devices.
    command = folder / "xsem"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m xsem "$@"\n')
    command.chmod(0o755)
    return folder


def bash(scripts: Path, *words: str) -> list[str]:
    done = subprocess.run(["bash", "--norc", "-c", ASK, "bash", str(scripts / "xsem.bash"), *words], timeout=50,
                          capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, cwd=scripts,
                          env={**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}", "XSEM_BACKENDS": "host"})
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(("words", "found"), [
    (["de"], ["devices", "demo"]), (["c"], ["completion", "conformance"]), (["--v"], ["--version"]),
    (["doctor", "--j"], ["--json"]), (["--json", "doctor", "--p"], ["--patience"]), (["completion", "f"], ["fish"]),
    (["conformance", "m"], ["matrix"]), (["conformance", "run", "--max"], ["--max-failures", "--max-hangs"]),
    (["demo", "--device", "h"], ["host:0"]), (["demo", "--device", "host", ":"], ["0"]),
    (["demo", "--device", "host", ":", "0"], ["0"]), (["demo", "--output", "xsem.z"], ["xsem.zsh"]),
    (["demo", "--frames", ""], []), (["conformance", "run", "--html", "xsem.f"], ["xsem.fish"]),
    (["conformance", "compare", "xsem.b"], ["xsem.bash"]),
    (["conformance", "run", "--profile", ""], list(profiles.profiles())),
    (["conformance", "list", "--profile", "m"], ["memory"]), (["conformance", "show", "--no"], ["--no-color"]),
])
def test_bash_completes(scripts: Path, words: list[str], found: list[str]) -> None:
    assert bash(scripts, "xsem", *words) == found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_accept_their_script(scripts: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n", str(scripts / f"xsem.{shell}")], check=True, timeout=50, stdin=subprocess.DEVNULL)
    if shell == "fish":
        done = subprocess.run(["fish", "-c", f"source {scripts / 'xsem.fish'}; complete -C 'xsem conformance m'"],
                              check=True, timeout=50, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["matrix"]


# _describe prints its array; compadd, the words that it gets.
ASK_ZSH = """
compdef() { :; }
_describe() { print -l -- "${(@P)2}"; }
compadd() { shift; print -l -- "$@"; }
source "$1"
shift
words=("$@") CURRENT=$#
_xsem
"""


@pytest.mark.parametrize(("words", "found"), [
    (["demo", ""], "--device:Device of the compute process: host, cuda:0, …"),
    (["demo", ""], "--without-wait:A control run: leave out the compute process's wait"),
    (["conformance", "run", "--profile", ""], "timeline"),
])
def test_zsh_shows_whole_texts_and_values(scripts: Path, words: list[str], found: str) -> None:
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    done = subprocess.run(["zsh", "-f", "-c", ASK_ZSH, "zsh", str(scripts / "xsem.zsh"), "xsem", *words], timeout=50,
                          capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL, cwd=scripts)
    assert found in done.stdout.splitlines()


@pytest.mark.parametrize(("line", "found"), [
    ("xsem demo --without", "--without-wait\tA control run: leave out the compute process's wait"),
    ("xsem conformance run --profile t", "timeline\tcore, timeline, memory or full"),
])
def test_fish_shows_whole_texts_and_values(scripts: Path, line: str, found: str) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    done = subprocess.run(["fish", "-c", f"source {scripts / 'xsem.fish'}; complete -C '{line}'"], check=True,
                          timeout=50, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert found in done.stdout.splitlines()


def test_texts_and_values_are_quoted_for_each_shell() -> None:
    quoted = {shell: completion._quoted("a 'b' \\ `c` $d", shell) for shell in ("zsh", "fish")}
    assert quoted == {"zsh": "a '\\''b'\\'' \\ `c` $d", "fish": "a \\'b\\' \\\\ `c` $d"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_has_all_commands_and_options(scripts: Path, shell: str) -> None:
    text = (scripts / f"xsem.{shell}").read_text()
    for word in ("devices", "doctor", "demo", "completion", "conformance", "new-backend", "without-wait", "max-hangs"):
        assert word in text
    assert text.isprintable() or set(text) - set("\n") == {each for each in text if each.isprintable()}


def test_command_that_cannot_be_loaded_is_completed_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(name: str) -> object:
        raise XsemError("no", reason="plugin_failed")

    monkeypatch.setattr(others, "load", fails)
    text = completion.script("bash")
    assert "conformance" in text
    assert "max-hangs" not in text


def test_script_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["completion", "zsh", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["shell"]) == (1, "zsh")
    assert found["script"].startswith("#compdef xsem\n")
