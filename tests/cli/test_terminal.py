"""Text on terminals of any width: nothing breaks inside a word, and no line is wider than the terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import uuid
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT
from support.plugin_folder import write_plugin

from xsem.cli import devices
from xsem.cli.terminal import GLUE, Screen, columns, listed, table, table_or_blocks, wrap

PLAIN = Screen(None, False)


@pytest.mark.parametrize(("text", "width", "lines"), [
    ("one two three", 8, [">one two", ".three"]), ("one two three", None, [">one two three"]),
    ("oneandmore two", 4, [">oneandmore", ".two"]), (f"one two{GLUE}three", 8, [">one", ".two three"]), ("", 8, [">"]),
    ("图形 图形", 8, [">图形", ".图形"]),
])
def test_lines_break_between_words(text: str, width: int | None, lines: list[str]) -> None:
    assert wrap(text, width, first=">", later=".") == lines


def test_wide_and_combining_characters_are_counted_in_columns() -> None:
    assert [columns(text) for text in ("abc", "图形", "e\u0301")] == [3, 4, 1]


@pytest.mark.parametrize("width", [17, 18, 24, 40, None])
def test_table_fits_the_width(width: int | None) -> None:
    rows = [("a:0", "one two three four", "x\ny"), ("b:0", "图形", "zz")]
    lines = table(("id", "words", "more"), rows, PLAIN, width)
    assert lines is not None
    assert max(map(columns, lines)) <= (width or 100)
    text = " ".join("\n".join(lines).split())
    for word in ["one", "two", "three", "four", "图形", "zz", "x", "y"]:
        assert word in text
    assert all(len(line) == len(line.rstrip()) for line in lines)


def test_table_that_must_break_a_word_is_refused() -> None:
    assert table(("id", "words"), [("a:0", "12345678")], PLAIN, 12) is None
    assert table(("id", "words"), [("a:0", "12345678")], PLAIN, 13) == ["id   words", "a:0  12345678"]


@pytest.mark.parametrize("width", [None, 99])
def test_file_pipe_and_narrow_terminal_have_blocks_in_place_of_a_table(width: int | None) -> None:
    rows = [("a:0", "one", "x\ny", "-"), ("b:0", "two", "", "z")]
    assert table_or_blocks(("id", "name", "words", "more"), rows, Screen(width, False), heads=2) == [
        "a:0  one", "  words  x", "         y", "", "b:0  two", "  more   z"]
    assert len(table_or_blocks(("id", "name", "words", "more"), rows, Screen(100, False), heads=2)) == 4
    assert table_or_blocks(("id",), [], Screen(width, False)) == []


@pytest.mark.parametrize(("names", "text"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_names_are_enumerated(names: list[str], text: str) -> None:
    assert listed(names) == text


# ---- commands
ONE, TWO = str(uuid.UUID(int=1 << 127)), str(uuid.UUID(int=3 << 126))


def row(name: str, identity: str | None, luid: str | None = None) -> dict[str, Any]:
    return {"id": name, "uuid": identity, "luid": luid}


def test_same_gpu_is_named_and_uuids_are_short() -> None:
    found = devices._identities([row("cuda:0", ONE), row("host:0", None), row("vulkan:0", TWO), row("vulkan:1", ONE),
                                 row("opencl:0", None, "77"), row("opencl:1", None, "77")])
    assert {name: text.replace(GLUE, " ") for name, text in found.items()} == {
        "cuda:0": "80000000", "host:0": "", "vulkan:0": "c0000000", "vulkan:1": "same GPU as cuda:0", "opencl:0": "",
        "opencl:1": "same GPU as opencl:0"}


def test_short_uuids_differ() -> None:
    near = [str(uuid.UUID(int=number)) for number in (1 << 64, 2 << 64)]
    assert list(devices._identities([row(f"a:{i}", each) for i, each in enumerate(near)]).values()) == [
        "00000000-0000-0001", "00000000-0000-0002"]


PLUGIN = """
import uuid
from xsem import spi
from xsem.types import DeviceInfo

class Acme(spi.Backend):
    name = "acme"
    spi_version = 2
    def devices(self):
        return (DeviceInfo(id="acme:0", backend="acme", index=0, uuid=uuid.UUID(int=1),
                           name="Acme Graphics Accelerator of 2026, large edition",
                           driver_version="570.86.15-with-a-long-name"),)
    def open(self, index): raise OSError("the device is asleep, and nothing that this driver knows can wake it up")
    def checks(self): return ()

@spi.hookimpl
def xsem_register_backends(register):
    register(Acme())
"""


def on_terminal(folder: Path, width: int, *arguments: str) -> list[str]:
    """Run a command on a terminal of this width. Return its lines."""
    write_plugin(folder, "acme", PLUGIN)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, width))
    environment = {**os.environ, "PYTHONPATH": path, "XSEM_BACKENDS": "acme,host", "TERM": "xterm", "NO_COLOR": "1"}
    environment.pop("COLUMNS", None)
    shown = b""
    with subprocess.Popen([sys.executable, "-m", "xsem", *arguments], stdin=subprocess.DEVNULL, stdout=theirs,
                          env=environment) as process:
        os.close(theirs)
        try:
            while part := os.read(ours, 1 << 16):
                shown += part
        except OSError:   # EIO: the process has ended
            pass
        finally:
            os.close(ours)
        process.wait(timeout=50)
    return shown.decode().splitlines()


@pytest.mark.variants
@pytest.mark.skipif(sys.platform != "linux", reason="a terminal of Linux")
@pytest.mark.parametrize("command", ["devices", "doctor"])
@pytest.mark.parametrize("width", [50, 80, 120, 200])
def test_lines_fit_a_terminal_and_words_stay_whole(tmp_path: Path, command: str, width: int) -> None:
    lines = on_terminal(tmp_path, width, command)
    words = " ".join(lines).split()
    for word in ("acme:0", "host:0", "timeline_semaphore_fd", "570.86.15-with-a-long-name", "Accelerator",
                 "native_events") if command == "devices" else ("acme", "host:0", "platform:"):
        assert any(word in each for each in words), (word, lines)
    # Only a single word may be wider.
    assert [line for line in lines if len(line) > width and len(line.split()) > 1] == []
    if command == "devices":
        assert any(line.startswith("device ") for line in lines) == (width == 200)   # a table
        assert any("timeline_semaphore_fd (in, out)" in line for line in lines)


REPORTS = [str(ROOT / "records" / "nvidia-h200" / f"conformance-{name}.json") for name in ("cuda", "opencl")]


@pytest.mark.variants
@pytest.mark.skipif(sys.platform != "linux", reason="a terminal of Linux")
@pytest.mark.parametrize("arguments", [["compare", *REPORTS], ["matrix", *REPORTS], ["show", "XSEM-BIN-001"],
                                       ["show", "core"]], ids=lambda arguments: " ".join(arguments[:1]))
@pytest.mark.parametrize("width", [80, 120])
def test_lines_of_the_suite_fit_a_terminal(tmp_path: Path, arguments: list[str], width: int) -> None:
    lines = on_terminal(tmp_path, width, "conformance", *arguments)
    assert [line for line in lines if len(line) > width and len(line.split()) > 1] == []
    if arguments[0] == "matrix":
        assert any(line.startswith("device  ") for line in lines) == (width == 120)   # a table
