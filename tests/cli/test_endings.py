"""How a command ends when its output, its standard streams or its environment are broken."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from support.plugin_folder import write_plugin

from xsem.cli.standard_streams import OutputLostError, finish

SMALL = ["demo", "--frames", "2", "--width", "16", "--height", "16"]
ONE_CASE = ["conformance", "run", "--device", "host", "--only", "XSEM-BUF-006"]


def commands(*every: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("arguments", [
        pytest.param(arguments, id="-".join(arguments[:2]), marks=[pytest.mark.slow] if arguments is ONE_CASE else [])
        for arguments in every])


HOST = {**os.environ, "XSEM_BACKENDS": "host", "NO_COLOR": "1"}
COMMAND = [sys.executable, "-m", "xsem"]


def xsem(
    *arguments: str, cwd: Path, within: str = 'exec "$@"', environment: dict[str, str] = HOST,
    stdout: int | IO[bytes] = subprocess.PIPE, stderr: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.CompletedProcess[str]:
    """Run a command. `within` is the shell line around it."""
    return subprocess.run(["sh", "-c", within, "sh", *COMMAND, *arguments], check=False, timeout=50, text=True, cwd=cwd,
                          env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)


# ---- the output
# Typer, Rich and print each handle a closed pipe differently.
@pytest.mark.variants
@commands(["--help"], ["devices"], ["doctor", "--json"], ["conformance", "list"], SMALL, ONE_CASE)
def test_closed_reader_ends_the_command_silently_with_141(tmp_path: Path, arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as gone:
        done = xsem(*arguments, cwd=tmp_path, stdout=gone)
    assert (done.returncode, done.stderr) == (141, "")


def test_closed_reader_of_both_streams_ends_the_command_with_141(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as gone:
        assert xsem("demo", "--device", "host:7", cwd=tmp_path, stdout=gone, stderr=gone).returncode == 141


@pytest.mark.variants
@commands(["--help"], ["devices"], ["doctor", "--json"], SMALL)
def test_lost_output_is_reported_in_one_line(tmp_path: Path, arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = xsem(*arguments, cwd=tmp_path, stdout=full)
    assert done.returncode == 3
    assert done.stderr == "xsem: the output cannot be written: No space left on device\n"


def test_output_lost_on_both_streams_gives_the_same_status(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:
        assert xsem("devices", cwd=tmp_path, stdout=full, stderr=full).returncode == 3


def test_bad_status_stays_bad_when_the_output_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def flush(self) -> None:
            raise OutputLostError(1, OSError(28, "No space left on device"))

    duplicated: list[int] = []
    monkeypatch.setattr(os, "dup2", lambda _null, number: duplicated.append(number))
    monkeypatch.setattr(sys, "stdout", Full())
    assert [finish(status) for status in (0, 1, 2, 3)] == [3, 1, 2, 3]
    assert duplicated == [1] * 4


@pytest.mark.variants
@commands(["devices"], SMALL, ONE_CASE)
@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"], ids=["output", "all"])
def test_closed_streams_change_no_status(tmp_path: Path, arguments: list[str], closed: str) -> None:
    done = xsem(*arguments, cwd=tmp_path, within=f'exec "$@" {closed}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert ("demo-host.png" in os.listdir(tmp_path)) == (arguments == SMALL)


def test_error_message_stays_out_of_stdout_when_stderr_is_closed(tmp_path: Path) -> None:
    done = xsem("demo", "--device", "host:7", cwd=tmp_path, within='exec "$@" 2>&-')
    assert done.returncode == 3
    assert "xsem:" not in done.stdout


# ---- the environment
@pytest.mark.variants
@commands(["--help"], ["devices"], SMALL)
@pytest.mark.parametrize("around", [
    {"HOME": None, "TERM": None, "COLUMNS": "1", "LINES": "1"}, {"COLUMNS": "many", "FORCE_COLOR": "1"},
    {"TERM": "dumb", "COLUMNS": "20", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
], ids=lambda around: "-".join(around))
def test_odd_environments_change_no_status(
    tmp_path: Path, arguments: list[str], around: dict[str, str | None]
) -> None:
    environment = {name: value for name, value in (HOST | around).items() if value is not None}
    done = xsem(*arguments, cwd=tmp_path, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")


@commands(["devices"], SMALL, ONE_CASE)
def test_removed_folder_fails_only_commands_that_write_there(tmp_path: Path, arguments: list[str]) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    done = xsem(*arguments, cwd=folder, within='rmdir "$PWD" && exec "$@"')
    assert "Traceback" not in done.stderr
    assert done.returncode == (2 if arguments == SMALL else 0)
    if arguments == SMALL:
        assert done.stderr.startswith("xsem: demo-host.png cannot be written: ")


def test_limit_on_open_files_is_reported_in_one_line(tmp_path: Path) -> None:
    done = xsem(*SMALL, cwd=tmp_path, within='ulimit -n 5 && exec "$@"')
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "Too many open files" in done.stderr


# ---- Ctrl-C
def interrupted(folder: Path, *arguments: str, until: str) -> tuple[int, str]:
    """Press Ctrl-C on a new terminal after it has shown `until`. Return the status and the text of the terminal."""
    ours, theirs = pty.openpty()

    # The first terminal that a session leader opens becomes the controlling terminal.
    with subprocess.Popen(
        ["sh", "-c", f'exec "$@" <>{os.ttyname(theirs)} >&0 2>&0', "sh", *COMMAND, *arguments], cwd=folder,
        env={**HOST, "TERM": "xterm", "COLUMNS": "80"}, stdin=subprocess.DEVNULL, start_new_session=True,
    ) as process:
        shown = b""
        try:
            while until.encode() not in shown:
                shown += os.read(ours, 1 << 16)
            os.close(theirs)   # not earlier: it keeps the terminal open until the process has opened it
            os.write(ours, b"\x03")
            with contextlib.suppress(OSError):   # EIO: the last process of the terminal has ended
                while part := os.read(ours, 1 << 16):
                    shown += part
        finally:
            os.close(ours)
        return process.wait(timeout=40), shown.decode()


@pytest.mark.variants
@pytest.mark.timeout(60)
@pytest.mark.parametrize(("arguments", "until"), [
    (["demo", "--frames", "100000", "--timeout", "20"], " of 100000"),
    (["conformance", "run", "--device", "host"], "25 of "),
], ids=["demo", "conformance"])
def test_ctrl_c_on_a_terminal_ends_all_processes_silently(
    tmp_path: Path, arguments: list[str], until: str
) -> None:
    # The terminal sends SIGINT to every process of the foreground group.
    status, shown = interrupted(tmp_path, *arguments, until=until)
    assert status == 130
    assert "Traceback" not in shown
    assert "KeyboardInterrupt" not in shown
    assert os.listdir(tmp_path) == []


def test_ctrl_c_in_a_finalizer_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", """
import time
from xsem import cli

class Finalized:
    def __del__(self):
        raise KeyboardInterrupt

def run():
    Finalized()
    time.sleep(40)
    return 0

cli._run = run
cli.main()
"""], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.variants
@pytest.mark.parametrize("arguments", [["devices"], ["doctor"], ["devices", "--json"]], ids=" ".join)
def test_ctrl_c_during_discovery_ends_with_130(tmp_path: Path, arguments: list[str]) -> None:
    write_plugin(tmp_path, "acme", """
import os, signal
from xsem import spi

class Acme(spi.Backend):
    name = "acme"
    spi_version = 2
    def devices(self):
        os.kill(os.getpid(), signal.SIGINT)
        return ()
    def open(self, index): ...
    def checks(self): return ()

@spi.hookimpl
def xsem_register_backends(register):
    register(Acme())
""")
    environment = {**HOST, "XSEM_BACKENDS": "acme",
                   "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])}
    done = xsem(*arguments, cwd=tmp_path, environment=environment)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_after_the_command_is_silent(tmp_path: Path) -> None:
    code = ("import atexit, os, signal, sys\n"
            "atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
            "sys.argv[1:] = ['--version']\n"
            "from xsem.cli import main\nmain()\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50,
                          cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert done.returncode == -signal.SIGINT   # 130 to a shell
    assert done.stdout.startswith("xsem ")
    assert done.stderr == ""
