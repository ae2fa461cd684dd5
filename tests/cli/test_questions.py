"""A backend that hangs or crashes: `xsem devices` and `xsem doctor` tell of it, and list the other backends."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.plugin_folder import write_plugin

from xsem.cli import questions

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the places and signals are those of a fork")

PLUGIN = """
import ctypes, os, signal, sys, time
from xsem import spi
from xsem.types import Capabilities, DeviceInfo

WHERE, HOW = os.environ["ACME"].split()

def fail(here):
    if here != WHERE:
        return
    if HOW == "sleep":
        time.sleep(1000)
    if HOW == "gil":   # a driver that hangs in C and keeps the GIL
        ctypes.PyDLL(None).pause()
    if HOW == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if HOW == "exit":
        os._exit(7)
    if HOW == "sys.exit":
        sys.exit(5)
    if HOW == "exit0":
        os._exit(0)
    if HOW == "print":
        print("the driver talks")
        os.write(1, b"the driver talks\\n")
    if HOW == "forks" and not os.fork():
        time.sleep(20)
        os._exit(0)

fail("import")

class Acme(spi.Backend):
    name = "acme"
    spi_version = 2
    def devices(self):
        fail("devices")
        return tuple(DeviceInfo(id=f"acme:{i}", backend="acme", index=i, name="Acme") for i in range(3))
    def open(self, index):
        fail(f"open{index}")
        raise OSError("not here")
    def checks(self):
        fail("checks")
        return ()

@spi.hookimpl
def xsem_register_backends(register):
    register(Acme())
"""
FAILURES = {
    "sleep": "did not answer within 2 s", "gil": "did not answer within 2 s", "segv": "crashed with SIGSEGV",
    "exit": "ended its process with status 7", "sys.exit": "ended its process with status 5",
}


def start(
    folder: Path, *arguments: str, fails: str, backends: str = "acme,host", patience: str = "2", code: str = PLUGIN
) -> subprocess.Popen[str]:
    if not (folder / "acme_plugin.py").exists():
        write_plugin(folder, "acme", code)
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    limit = "--timeout" if arguments[0] == "demo" else "--patience"
    return subprocess.Popen(
        [sys.executable, "-m", "xsem", *arguments, limit, patience], text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": path, "XSEM_BACKENDS": backends, "ACME": fails})


def ask(folder: Path, *arguments: str, fails: str, **options: str) -> tuple[int, str, str]:
    process = start(folder, *arguments, fails=fails, **options)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def listed(folder: Path, fails: str) -> tuple[str | None, dict[str, dict[str, Any]]]:
    """Return why acme is unavailable, and all devices. host must be listed."""
    status, out, err = ask(folder, "devices", "--json", fails=fails)
    assert (status, err) == (0, "")
    told = json.loads(out)
    devices = {each["id"]: each for each in told["devices"]}
    assert devices["host:0"]["problem"] is None
    return {each["name"]: each["unavailable"] for each in told["backends"]}["acme"], devices


@pytest.mark.variants
@pytest.mark.parametrize("how", FAILURES)
def test_devices_tells_of_a_backend_that_hangs_or_crashes(tmp_path: Path, how: str) -> None:
    reason, devices = listed(tmp_path, f"devices {how}")
    assert reason is not None
    assert reason.startswith(f"devices() {FAILURES[how]}")
    assert set(devices) == {"host:0"}


def test_failure_names_the_innermost_frame_of_the_plugin(tmp_path: Path) -> None:
    line = PLUGIN.splitlines().index("        time.sleep(1000)") + 1
    reason, _ = listed(tmp_path, "devices sleep")
    assert reason == f"devices() {FAILURES['sleep']}, in fail ({tmp_path / 'acme_plugin.py'}, line {line})"


def test_table_of_devices_has_the_failure_below(tmp_path: Path) -> None:
    status, out, _ = ask(tmp_path, "devices", fails="devices exit")
    assert status == 0
    assert "host:0" in out
    assert "acme (acme 1.0): devices() ended its process with status 7" in out


@pytest.mark.variants
@pytest.mark.parametrize("how", ["sleep", "segv"])
def test_device_that_hangs_or_crashes_is_listed_with_its_failure(tmp_path: Path, how: str) -> None:
    reason, devices = listed(tmp_path, f"open1 {how}")
    assert reason is None
    assert devices["acme:0"]["problem"] == "OSError: not here"
    # The process ended at the second device, so nothing is known of the third one, either.
    for name in ("acme:1", "acme:2"):
        assert devices[name]["problem"].startswith(f"the backend {FAILURES[how]}")
        assert devices[name]["name"] == "Acme"


@pytest.mark.variants
@pytest.mark.parametrize("where", ["checks", "devices"])
@pytest.mark.parametrize("how", FAILURES)
def test_doctor_tells_of_a_backend_that_hangs_or_crashes(tmp_path: Path, where: str, how: str) -> None:
    status, out, err = ask(tmp_path, "doctor", "--json", fails=f"{where} {how}")
    assert (status, err) == (1, "")
    told = {each["name"]: each for each in json.loads(out)["backends"]}
    assert told["host"]["works"]
    assert not told["acme"]["works"]
    last = told["acme"]["checks"][-1]
    assert (last["name"], last["ok"]) == (where, False)
    assert last["detail"].startswith(f"{where}() {FAILURES[how]}")
    assert "report it to acme 1.0" in last["remedy"]


@pytest.mark.variants
@pytest.mark.parametrize("how", [*FAILURES, "exit0"])
def test_import_that_hangs_or_crashes_is_told_of(tmp_path: Path, how: str) -> None:
    expected = {"sys.exit": "SystemExit: 5", "exit0": "its import ended its process with status 0"}.get(
        how, f"its import {FAILURES.get(how)}")
    reason, devices = listed(tmp_path, f"import {how}")
    assert reason is not None
    assert reason.startswith(expected)
    assert set(devices) == {"host:0"}
    status, out, err = ask(tmp_path, "doctor", "--json", fails=f"import {how}")
    assert (status, err) == (1, "")
    told = {each["name"]: each for each in json.loads(out)["backends"]}
    assert told["host"]["works"]
    [check] = told["acme"]["checks"]
    assert check["detail"].startswith(expected)
    assert "update or uninstall acme 1.0" in check["remedy"]


@pytest.mark.variants
@pytest.mark.parametrize("option", ["--device", "--exporter"])
@pytest.mark.parametrize(("fails", "said"), [
    ("import sleep", "the import of the plugin of 'acme' did not answer within 2 s, in fail ("),
    ("import segv", "the import of the plugin of 'acme' crashed with SIGSEGV, in fail ("),
    ("devices sleep", "the opening did not answer within 2 s, in fail ("),
    ("open0 exit", "the opening ended its process with status 7"),
])
def test_demo_tells_of_a_device_that_hangs_or_crashes(tmp_path: Path, option: str, fails: str, said: str) -> None:
    status, out, err = ask(tmp_path, "demo", option, "acme:0", "--output", str(tmp_path / "out.png"), fails=fails)
    assert (status, out) == (3, "")
    assert err.startswith(f"xsem: acme:0 cannot be opened: {said}")
    assert len(err.splitlines()) == 1


def test_demo_imports_only_the_plugins_of_its_devices(tmp_path: Path) -> None:
    status, _, err = ask(tmp_path, "demo", "--frames", "1", "--output", str(tmp_path / "out.png"),
                         fails="import sleep", patience="60")
    assert (status, err) == (0, "")


def test_second_backend_of_a_plugin_is_not_asked_after_a_failure(tmp_path: Path) -> None:
    code = PLUGIN + """
class Late(Acme):
    name = "late"

    def devices(self):
        return ()

@spi.hookimpl
def xsem_register_backends(register):
    register(Acme())
    register(Late())
"""
    for command in ("devices", "doctor"):
        status, out, err = ask(tmp_path, command, fails="devices segv", code=code)
        assert (status, err) == (int(command == "doctor"), "")
        assert "devices() crashed with SIGSEGV" in out
        assert "was not called, because acme of the same plugin crashed with SIGSEGV" in " ".join(out.split())


def test_two_plugins_with_one_backend_are_told_of(tmp_path: Path) -> None:
    write_plugin(tmp_path, "bacme", PLUGIN.replace('name = "acme"', 'name = "other"'))
    status, out, err = ask(tmp_path, "devices", "--json", fails="devices well", backends="acme,bacme,host",
                           code=PLUGIN.replace('name = "acme"', 'name = "other"'))
    assert (status, err) == (0, "")
    told = {each["distribution"]: each for each in json.loads(out)["backends"]}
    assert told["acme 1.0"]["unavailable"] is None
    assert told["bacme 1.0"]["unavailable"] == "acme 1.0 has registered a backend of this name already"


@pytest.mark.slow
def test_process_that_a_backend_starts_does_not_delay_the_answer(tmp_path: Path) -> None:
    reason, devices = listed(tmp_path, "devices forks")
    assert reason is None
    assert devices["acme:2"]["problem"] == "OSError: not here"


@pytest.mark.variants
@pytest.mark.parametrize("where", ["import", "devices"])
@pytest.mark.parametrize("command", ["devices", "doctor"])
def test_text_printed_by_a_driver_is_not_in_the_output(tmp_path: Path, command: str, where: str) -> None:
    status, out, err = ask(tmp_path, command, "--json", fails=f"{where} print")
    assert status == 0
    assert "host" in json.dumps(json.loads(out))
    assert set(err.splitlines()) == {"the driver talks"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_hung_process_ends_with_its_command(tmp_path: Path, number: signal.Signals) -> None:
    command = start(tmp_path, "devices", fails="devices sleep", backends="acme", patience="60")
    while not (child := Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text()):
        assert command.poll() is None
    child_end = os.pidfd_open(int(child))
    try:
        command.send_signal(number)
        out, err = command.communicate(timeout=60)
        assert select.select([child_end], [], [], 30)[0]
    finally:
        os.close(child_end)
    if number == signal.SIGINT:
        assert (command.returncode, out, err) == (130, "", "")


def test_hang_is_told_of_within_5_s() -> None:
    assert questions.PATIENCE_S + questions._GRACE_S < 5
