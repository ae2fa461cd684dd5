"""Hooks of a backend for the suite: a case without its hook is not examined, and each hook decides its case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.plugin_folder import write_plugin

CODE = """
from xsem import spi
from xsem.errors import WrongDeviceError
from xsem.types import DeviceInfo
from xsem_host.device import HostDevice

FAULT = {fault!r}

class Queue(spi.SemaphoreQueue, spi.CopyQueue):
    def __init__(self, native):
        self.native, self.callers = native, native.inner.callers
        self.identity = self.native_handle = native.number
        for name in ("append_barrier", "append_wait", "append_signal", "append_copy", "append_fill"):
            setattr(self, name, getattr(native.inner, name))
    def append_barrier(self, *args): ...
    append_wait = append_signal = append_copy = append_fill = append_barrier
    def close(self):
        if FAULT == "closed":
            self.native.open = False

class Native:
    numbers = 100
    def __init__(self, device):
        Native.numbers += 1
        self.device, self.inner, self.number, self.open = device, device.create_queue(), Native.numbers, True
        known[self.number] = self
    def works(self):
        fence = self.inner.append_barrier((), True)
        return self.open and self.device.wait_fence(fence, 10**9)

known = {{}}

class Device(HostDevice, spi.BorrowedQueues):
    def borrow_queue(self, stream, in_order):
        native = known[stream]
        if native.device is not self and FAULT != "foreign":
            raise WrongDeviceError("another device", reason="wrong_device", expected="this", actual="another")
        made = Queue(native)
        if FAULT == "identity":
            made.identity = object()
        if FAULT == "handle":
            made.native_handle += 1
        return made

class Hooks(spi.SuiteHooks):
    def __init__(self, device):
        self.device = device
    def made(self, device):
        native = Native(device)
        return spi.NativeQueue(stream=native.number, handle=native.number, works=native.works,
                               close=native.inner.close)
    def native_queue(self):
        return self.made(self.device)
    def foreign_queue(self):
        return self.made(Device())

class Hooked(spi.Backend):
    name = "hooked"
    spi_version = 2
    def devices(self):
        return [DeviceInfo(id="hooked:0", backend="hooked", index=0, name="host")]
    def open(self, index):
        return Device()
    def suite_hooks(self, driver):
        return spi.SuiteHooks() if FAULT == "no hooks" else Hooks(driver)

@spi.hookimpl
def xsem_register_backends(register):
    register(Hooked())
"""


def _ran(folder: Path, fault: str, *requirements: str) -> tuple[int, dict[str, tuple[str, str]]]:
    write_plugin(folder, "hooked", CODE.format(fault=fault))
    report = folder / "out.json"
    asked = [each for requirement in requirements for each in ("--only", requirement)]
    done = subprocess.run(
        [sys.executable, "-m", "xsem", "conformance", "run", "--device", "hooked:0", "--exporter", "host",
         "--no-quirks", "--patience", "10", "--report", str(report), *asked],
        env={**os.environ, "PYTHONPATH": str(folder), "XSEM_PURE": "1"}, cwd=folder, capture_output=True, text=True,
        check=False, stdin=subprocess.DEVNULL, timeout=110)
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, tuple[str, str]] = {}
    for each in json.loads(report.read_text())["cases"]:   # of several types, one that does not pass counts
        if each["outcome"] != "UNSUPPORTED" and found.get(each["requirement"], ("PASS",))[0] == "PASS":
            found[each["requirement"]] = each["outcome"], each["detail"]
    return done.returncode, found


@pytest.mark.slow
def test_case_without_its_hook_is_not_examined_and_costs_nothing(tmp_path: Path) -> None:
    wanted = {"XSEM-LIST-005": "native_queue", "XSEM-DEV-007": "foreign_queue", "XSEM-EVT-009": "native_event",
              "XSEM-ORD-013": "failing_work", "XSEM-ORD-014": "failing_work", "XSEM-THR-007": "native_queue"}
    status, found = _ran(tmp_path, "no hooks", *wanted, "XSEM-CAP-001")
    assert status == 0
    assert found.pop("XSEM-CAP-001")[0] == "PASS"
    assert found == {name: ("NOT_EXAMINED", f"the backend hooked does not implement the hook {hook}()")
                     for name, hook in wanted.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "failing", "message"), [
    ("", "", ""),
    ("closed", "XSEM-LIST-005", "the native queue does not work"),
    ("identity", "XSEM-LIST-005", "two identities"),
    ("handle", "XSEM-LIST-005", "has the native_handle"),
    ("foreign", "XSEM-DEV-007", "a queue of another device is accepted"),
])
def test_native_queue_decides_its_cases(tmp_path: Path, fault: str, failing: str, message: str) -> None:
    status, found = _ran(tmp_path, fault, "XSEM-LIST-005", "XSEM-DEV-007")
    assert status == int(bool(failing))
    assert {name for name, (outcome, _) in found.items() if outcome != "PASS"} == {failing} - {""}
    assert message in found.get(failing, ("", ""))[1]
