"""Text from drivers on the terminal: no control sequences, no forged lines, no markup."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.plugin_folder import write_plugin

from xsem.cli.text import printable, printable_lines

NAME = "[red]Acme[/red] :x: \\x1b[31m\\x1b]0;owned\\x07\\x9b2J\\u202egnp\\u2066\\nhost:1 forged\\r\\x00\\ud800"
PLUGIN = f"""
from xsem import spi
from xsem.types import HealthCheck, DeviceInfo
from xsem.errors import DriverError

NAME = "{NAME}"

class Acme(spi.Backend):
    name = "acme"
    spi_version = 2
    def devices(self):
        return (DeviceInfo(id="acme:0", backend="acme", index=0, name=NAME, driver_version=NAME),)
    def open(self, index):
        raise DriverError(NAME, reason="driver_failed", call="acmeOpen", code=5, code_name=NAME, likely_causes=(NAME,))
    def details(self, index):
        return {{"name": NAME}}
    def checks(self):
        return (HealthCheck(name=NAME, ok=False, detail=NAME, remedy=NAME, causes=(NAME,)),)

@spi.hookimpl
def xsem_register_backends(register):
    register(Acme())
"""


@pytest.mark.parametrize(("text", "line", "lines"), [
    ("NVIDIA H200", "NVIDIA H200", "NVIDIA H200"),
    ("Radeon™ Gerät 图形", "Radeon™ Gerät 图形", "Radeon™ Gerät 图形"),
    ("  two \n lines\t", "two lines", "  two \n lines "),
    ("a\x1b[31mb", "a�[31mb", "a�[31mb"),
    ("a\x00\x7f\x9bb", "a���b", "a���b"),
    ("a\rb\u2028c", "a b c", "a\nb\nc"),
    ("\u202eabc\u2069", "�abc�", "�abc�"),
    ("a\u200b\ufeff\u00adb", "a���b", "a���b"),
    ("\ud800", "�", "�"),
    ("", "", ""),
])
def test_unprintable_text_is_replaced(text: str, line: str, lines: str) -> None:
    assert printable(text) == line
    assert printable_lines(text) == lines


def acme(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    write_plugin(folder, "acme", PLUGIN)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run([sys.executable, "-m", "xsem", *arguments], capture_output=True, text=True, check=False,
                          timeout=50, stdin=subprocess.DEVNULL, cwd=folder, encoding="utf-8",
                          env={**os.environ, "PYTHONPATH": path, "XSEM_BACKENDS": "acme,host", **environment})


SHOWN = "[red]Acme[/red] :x: �[31m�]0;owned��2J�gnp� host:1 forged ��"


@pytest.mark.variants
@pytest.mark.parametrize(("arguments", "where"), [
    (["devices"], "stdout"), (["doctor"], "stdout"), (["demo", "--device", "acme:0"], "stderr"),
    (["demo", "--exporter", "acme:0"], "stderr"),
    (["conformance", "run", "--device", "acme:0", "--only", "XSEM-BUF-006"], "stdout"),
])
@pytest.mark.parametrize("coloured", [False, True])
def test_device_name_cannot_control_the_terminal(
    tmp_path: Path, arguments: list[str], where: str, coloured: bool
) -> None:
    colours = {"FORCE_COLOR": "1", "COLUMNS": "300"} if coloured else {"NO_COLOR": "1"}
    done = acme(tmp_path, *arguments, **colours)
    shown = getattr(done, where)
    assert "Traceback" not in done.stderr
    # Rich's own style sequences end with "m".
    for control in ("\x1b[31m", "\x1b]", "\x07", "\x9b", "\u202e", "\u2066", "\r", "\x00"):
        assert control not in done.stdout + done.stderr
    assert not [line for line in shown.splitlines() if line.startswith("host:1")]
    # A table wraps its cells.
    whole = "[red]Acme[/red] :x:" if arguments == ["devices"] else SHOWN
    assert whole in " ".join(shown.split())


def test_json_has_the_device_name_unchanged(tmp_path: Path) -> None:
    done = acme(tmp_path, "devices", "--json")
    (device,) = [each for each in json.loads(done.stdout)["devices"] if each["id"] == "acme:0"]
    assert device["name"] == NAME.encode().decode("unicode_escape")
    assert done.stdout.isascii()


@pytest.mark.variants
@pytest.mark.parametrize("arguments", [["devices"], ["doctor"], ["conformance", "list"], ["--help"]], ids=" ".join)
def test_character_missing_from_the_encoding_is_escaped(tmp_path: Path, arguments: list[str]) -> None:
    done = acme(tmp_path, *arguments, PYTHONIOENCODING="ascii")
    assert done.returncode == (1 if arguments == ["doctor"] else 0), done.stderr
    assert done.stdout.isascii()
    assert ("\\ufffd" in done.stdout) == (arguments[0] in ("devices", "doctor"))
