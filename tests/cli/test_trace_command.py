"""``xsem trace -- COMMAND``: a run with a trace, and its summary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the host device exports files on Linux")

PROGRAM = """
import sys, xsem
with xsem.open_device("host") as device:
    frames, commands = device.create_timeline(label="frames"), device.create_command_list()
    commands.append_wait(frames, 1)
    frames.host_signal(1)
    commands.synchronize()
sys.exit(7)
"""


def traced(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "xsem", "trace", *arguments], check=False, capture_output=True,
                          text=True, timeout=60, cwd=folder, env={**os.environ, "TMPDIR": str(folder or "/tmp")})


def test_command_is_traced_and_its_status_returned(tmp_path: Path) -> None:
    done = traced("--json", "--folder", str(tmp_path / "new"), "--html", str(tmp_path / "run.html"), "--",
                  sys.executable, "-c", PROGRAM)
    assert done.returncode == 7, done.stderr
    told = json.loads(done.stdout)
    assert told["waits"][0]["semaphore"] == "timeline_semaphore_fd 'frames'"
    assert (tmp_path / "run.html").stat().st_size > 10_000
    assert done.stderr == f"the traces are in {tmp_path}/new\n"
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_command_without_a_device_is_told(tmp_path: Path) -> None:
    done = traced("--folder", str(tmp_path), "--", "sh", "-c", "exit 3")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "xsem trace: no process of the command has opened a device\n"


def test_processes_that_only_look_for_devices_leave_no_trace(tmp_path: Path) -> None:
    done = traced("--folder", str(tmp_path), "--", sys.executable, "-m", "xsem", "devices")
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_command_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    done = traced("--folder", str(tmp_path), "--", str(tmp_path / "missing"))
    assert done.returncode == 2
    assert done.stderr == f"xsem: argument COMMAND: {tmp_path}/missing: No such file or directory\n"


def test_command_killed_by_a_signal_has_the_status_of_a_shell(tmp_path: Path) -> None:
    done = traced("--quiet", "--folder", str(tmp_path), "--", sys.executable, "-c",
                  "import os, xsem\nxsem.open_device('host')\nos.kill(os.getpid(), 9)")
    assert done.returncode == 128 + 9
    assert "is cut after" in done.stdout


def test_process_that_changes_its_folder_writes_into_the_same_one(tmp_path: Path) -> None:
    done = traced("--quiet", "--folder", "new", "--", sys.executable, "-c",
                  "import os, xsem\nos.chdir('/')\nxsem.open_device('host').release()", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "new").iterdir())) == 1


def test_folder_without_a_trace_does_not_stay(tmp_path: Path) -> None:
    assert traced("--", "sh", "-c", "exit 3", folder=tmp_path).returncode == 3
    assert traced("--", str(tmp_path / "missing"), folder=tmp_path).returncode == 2
    assert list(tmp_path.iterdir()) == []
