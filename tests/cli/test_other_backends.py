"""The command line with plugins of other packages: it shows their texts, and their errors break nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from support.plugin_folder import write_plugin

from xsem.cli import app, doctor
from xsem.cli.files import CannotWriteError
from xsem.errors import (
    BackendUnavailableError,
    BadArgumentError,
    DeviceNotFoundError,
    DriverError,
    OutOfMemoryError,
    UnsupportedError,
    WaitTimeoutError,
    XsemError,
)
from xsem.plugins import ENTRY_POINT_GROUP

PLUGIN = """
import os, uuid
from xsem import spi
from xsem.types import Capabilities, HealthCheck, DeviceInfo, Feature, SemaphoreHandleType
from xsem.errors import BackendUnavailableError, DriverError

MODE = os.environ["ACME"]
ONE, TWO = uuid.UUID(int=1), uuid.UUID(int=2)

class List(spi.QueueDriver):
    identity = 1
    def append_barrier(self, wait_fences, want_fence): return 1
    def close(self): pass

class Driver(spi.DeviceDriver):
    capabilities = Capabilities()
    def create_queue(self): return List()
    def query_fence(self, fence): return True
    def release_fence(self, fence): pass
    def close(self): pass

class Bridged(Driver, spi.HostFences):
    types = frozenset({SemaphoreHandleType.HOST_TIMELINE_FD})
    capabilities = Capabilities(semaphore_import=types, semaphore_export=types, bridged=types)
    def create_host_fence(self): return 1
    def reach_host_fence(self, fence): pass

class Acme(spi.Backend):
    name = "acme"
    spi_version = 2
    def devices(self):
        if MODE == "unavailable":
            raise BackendUnavailableError("libacme.so is missing", reason="libacme_missing",
                                          likely_causes=("acme-driver is of another release",))
        if MODE == "broken":
            raise RuntimeError("no such thing")
        if MODE == "none":
            return ()
        return (DeviceInfo(id="acme:0", backend="acme", index=0, name="Acme 9", uuid=ONE, luid=bytes(range(8)),
                           driver_uuid=TWO, driver_version="9.9"),
                DeviceInfo(id="acme:1", backend="acme", index=1, name="Acme 8", uuid=TWO, driver_version="9.9"))
    def open(self, index):
        if index == 1:
            raise DriverError("the device is gone", reason="driver_failed", call="acmeOpen", code=5)
        return Bridged() if MODE == "bridged" else Driver()
    def details(self, index):
        return {"acmeOpen": "by export"} if index == 0 else {}
    def checks(self):
        if MODE == "broken":
            raise RuntimeError("checks broke")
        if MODE == "unusable":
            error = DriverError("it does not start", reason="driver_failed", call="acmeInit", code=5,
                                likely_causes=("the fan", "the dog"))
            return (spi.failed_check("libacme", error, "reinstall libacme"),)
        return (HealthCheck(name="libacme", ok=MODE != "check", detail="libacme 9", remedy="reinstall libacme"),)

@spi.hookimpl
def xsem_register_backends(register):
    register(Acme())
"""


@pytest.fixture
def acme(tmp_path: Path) -> Any:
    entry_points = write_plugin(tmp_path, "acme", PLUGIN) / "acme-1.0.dist-info" / "entry_points.txt"
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])

    def run(*arguments: str, mode: str = "well", backends: str = "acme", more: str = "") -> Any:
        entry_points.write_text(entry_points.read_text() + more)
        return subprocess.run(
            [sys.executable, "-m", "xsem", *arguments], capture_output=True, text=True, check=False, timeout=50,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "NO_COLOR": "1", "PYTHONPATH": path, "XSEM_BACKENDS": backends, "ACME": mode},
        )

    return run


def test_devices_shows_all_details_of_a_backend(acme: Any) -> None:
    done = acme("devices", "--json")
    assert done.returncode == 0, done.stderr
    one, two = json.loads(done.stdout)["devices"]
    assert one["uuid"] == "00000000-0000-0000-0000-000000000001"
    assert one["driver_uuid"] == "00000000-0000-0000-0000-000000000002"
    assert one["luid"] == "0001020304050607"
    assert one["details"] == {"acmeOpen": "by export"}
    assert one["problem"] is None
    assert (one["name"], one["driver_version"], one["index"], one["backend"]) == ("Acme 9", "9.9", 0, "acme")
    # A device that cannot be opened is listed with the reason.
    assert two["luid"] is None
    assert two["capabilities"] is None
    assert "the device is gone" in two["problem"]


def test_pipe_has_a_block_for_each_device_also_one_that_cannot_be_opened(acme: Any) -> None:
    first, second = acme("devices").stdout.split("\n\n")
    assert first.startswith("acme:0  Acme 9\n")
    assert "  uuid        00000000-0000-0000-0000-000000000001\n" in first   # the first digits of both are the same
    assert second.startswith("acme:1 ")
    assert "\n  problem     DriverError: the device is gone" in second


def test_devices_tells_which_types_are_bridged(acme: Any) -> None:
    assert "host_timeline_fd (in, out, bridged)" in acme("devices", mode="bridged").stdout
    listed = json.loads(acme("devices", "--json", mode="bridged").stdout)["devices"]
    assert listed[0]["capabilities"]["bridged"] == ["host_timeline_fd"]


def test_doctor_makes_portable_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(size: int) -> None:
        raise DriverError("the kernel refused", reason="system_call_failed", call="memfd_create", code=1)

    assert doctor._portable().ok
    monkeypatch.setattr(doctor, "new_memory", refused)
    check = doctor._portable()
    assert (check.ok, check.detail) == (False, "the kernel refused [memfd_create returned an unknown code (1)]")
    assert check.remedy


@pytest.mark.variants
@pytest.mark.parametrize("mode", ["unavailable", "none"])
def test_empty_device_list_gives_status_3(acme: Any, mode: str) -> None:
    done = acme("devices", mode=mode)
    assert done.returncode == 3
    assert "no devices" in done.stdout
    assert ("libacme.so is missing" in done.stdout) == (mode == "unavailable")
    assert acme("doctor", mode=mode).returncode == 3


def test_doctor_separates_likely_causes_from_remedies(acme: Any) -> None:
    done = acme("doctor", mode="unavailable")
    assert done.stdout.splitlines()[0] == "acme lacks a driver or a package"
    assert "  -   devices: libacme.so is missing" in done.stdout
    assert "BAD" not in done.stdout
    assert "likely: acme-driver is of another release" in done.stdout
    assert "to use" not in done.stdout   # the backend gives no remedy
    assert "only these plugins are loaded: acme" in done.stdout
    assert "ok  libacme: libacme 9" in done.stdout
    assert "reinstall libacme" not in done.stdout   # that check is ok


def test_check_failed_by_an_error_has_causes_and_a_remedy(acme: Any) -> None:
    done = acme("doctor", mode="unusable")
    lines = [line.strip() for line in done.stdout.splitlines()]
    at = lines.index("BAD libacme: it does not start [acmeInit returned an unknown code (5)]")
    assert lines[at + 1 : at + 3] == ["likely: the fan", "likely: the dog"]
    assert lines[:3] == ["acme works", "", "- for acme: reinstall libacme"]
    told = json.loads(acme("doctor", "--json", mode="unusable").stdout)["backends"][0]["checks"]
    (check,) = [each for each in told if each["name"] == "libacme"]
    assert (check["causes"], check["remedy"]) == (["the fan", "the dog"], "reinstall libacme")


def test_doctor_fails_when_a_backend_is_broken(acme: Any) -> None:
    assert acme("doctor", mode="well").returncode == 0
    done = acme("doctor", mode="check")
    assert done.returncode == 1
    assert "for acme: reinstall libacme" in done.stdout
    done = acme("doctor", mode="broken", backends="acme,host")
    assert done.returncode == 1
    assert "RuntimeError: checks broke" in done.stdout
    assert "RuntimeError: no such thing" in done.stdout
    assert "report it to acme 1.0" in done.stdout
    assert "host:0" in done.stdout
    assert done.stdout.splitlines()[0] == "host works; acme does not work"
    assert "BAD devices: RuntimeError" in done.stdout
    assert "- to repair acme: report it to acme 1.0" in done.stdout


def test_backend_without_a_device_is_not_broken(acme: Any) -> None:
    done = acme("doctor", mode="none", backends="acme,host")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "host works; acme finds no device"
    assert "BAD" not in done.stdout


def test_doctor_passes_when_only_a_library_is_missing(acme: Any) -> None:
    done = acme("doctor", mode="unavailable", backends="acme,host")
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "host works; acme lacks a driver or a package"
    assert "BAD" not in done.stdout


def test_doctor_fails_when_kernel_cannot_compare_descriptors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "kernel_can_compare", lambda: False)
    assert doctor.run(as_json=False, patience_s=60) == 1
    assert "BAD file descriptors" in capsys.readouterr().out


def test_doctor_knows_the_backends_of_the_project() -> None:
    points = metadata.entry_points(group=ENTRY_POINT_GROUP)
    assert {point.name for point in points if point.dist and point.dist.name == "xsem"} == {"host", *doctor._KNOWN}


def test_doctor_lists_missing_plugins() -> None:
    # In a process of its own: the command asks each plugin in a fork, and a test before this one may have loaded some.
    program = """
import sys
from xsem.cli import doctor
doctor._KNOWN = {"apex": ("apex.bindings", "apex"), "bare": (None, None), "host": (None, None)}
sys.exit(doctor.run(as_json=True, patience_s=60))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    absent = json.loads(done.stdout)["absent"]
    assert [each["name"] for each in absent] == ["apex", "bare"]
    assert "xsem[apex]" in absent[0]["remedy"]
    assert all(not each["ok"] and each["remedy"] for each in absent)


def test_commands_of_other_packages_are_added(acme: Any, tmp_path: Path) -> None:
    (tmp_path / "acme_commands.py").write_text(
        "def hello(asked):\n    print('from acme')\n    return 0\n"
        "def add(parser):\n    parser.add_subparsers().add_parser('hello').set_defaults(run=hello)\n"
    )
    more = "[xsem.commands]\nacme = acme_commands:add\nbroken = acme_commands:nothing\n"
    done = acme("acme", "hello", more=more)
    assert (done.returncode, done.stdout, done.stderr) == (0, "from acme\n", "")
    assert "Command of the package acme." in acme("--help").stdout
    for arguments in (["acme", "-h"], ["acme", "hello", "-h"]):
        assert acme(*arguments).returncode == 0
    done = acme("broken")
    assert done.returncode == 1
    assert "the command 'broken' cannot be loaded" in done.stderr
    assert "Traceback" not in done.stderr


def test_command_without_its_package_says_what_to_install(acme: Any, tmp_path: Path) -> None:
    (tmp_path / "acme_commands.py").write_text("import no_such_package\n")
    with (tmp_path / "acme-1.0.dist-info" / "METADATA").open("a") as metadata:
        metadata.write("Provides-Extra: acme\n")
    done = acme("acme", more="[xsem.commands]\nacme = acme_commands:add\nother = acme_commands:add\n")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "xsem: `xsem acme` needs no_such_package: pip install 'acme[acme]'\n"
    assert acme("other").stderr == "xsem: `xsem other` needs no_such_package: pip install 'no_such_package'\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (KeyboardInterrupt(), 130),
        (BackendUnavailableError("none", reason="unavailable"), 3),
        (DeviceNotFoundError("none", reason="no_device"), 3),
        (UnsupportedError("no", capability="x"), 3),
        (BadArgumentError("no", reason="bad_device_id"), 2),
        (BadArgumentError("no", reason="other"), 1),
        (XsemError("no", reason="other"), 1),
        (WaitTimeoutError("no"), 1),
        (OutOfMemoryError("no", reason="host_memory"), 3),
        (CannotWriteError("no", reason="cannot_write"), 2),
        (ModuleNotFoundError("No module named 'numpy'", name="numpy"), 3),
        (OSError(24, "Too many open files"), 3),
        (MemoryError(), 3),
        (SystemExit(5), 5),
        (SystemExit(None), 0),
        (SystemExit("words"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_every_outcome_has_its_status(monkeypatch: pytest.MonkeyPatch, error: BaseException, status: int) -> None:
    def ends(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(app, "_run", ends)
    assert app.run([]) == status


def test_error_is_shown_with_call_code_and_causes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_args: object, **_options: object) -> None:
        raise DriverError("it failed", reason="driver_failed", call="acmeOpen", code=5, code_name="ACME_GONE",
                          likely_causes=("the cable",))

    monkeypatch.setattr(app, "_run", fails)
    assert app.run([]) == 1
    assert capsys.readouterr().err == (
        "xsem: it failed [driver_failed]\n  acmeOpen returned ACME_GONE (5)\n  likely: the cable\n"
    )
