"""A sound device conforms, also with a UUID and weaker promises; the verdict on another device names its fault."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.plugin_folder import write_plugin

CODE = """
import dataclasses, subprocess, time, uuid
from xsem import spi
from xsem.types import DeviceInfo
from xsem_host.device import HostDevice
from xsem_host.suite_hooks import HostHooks

class Device(HostDevice):
    @property
    def capabilities(self):
        return dataclasses.replace(super().capabilities, {declared})
    def query_fence(self, fence):
        time.sleep({query_s})
        return super().query_fence(fence)

class Sound(spi.Backend):
    name = "sound"
    spi_version = 2
    def devices(self):
        return [DeviceInfo(id="sound:0", backend="sound", index=0, name="host", uuid={uuid})]
    def open(self, index):
        {opens}
        return Device()
    def suite_hooks(self, driver):
        return HostHooks()

@spi.hookimpl
def xsem_register_backends(register):
    register(Sound())
"""


def cases(folder: Path, *only: str, uuid: str = "None", declared: str = "", query_s: float = 0,
          opens: str = "") -> list[dict[str, str]]:
    """Run the suite on a device that is `host` except for what is given. Return the cases of its report."""
    write_plugin(folder, "sound", CODE.format(uuid=uuid, declared=declared, query_s=query_s, opens=opens))
    report = folder / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "xsem", "conformance", "run", "--device", "sound:0", "--exporter", "host",
         "--no-quirks", "--report", str(report), *(f"--only={each}" for each in only)],
        env={**os.environ, "PYTHONPATH": str(folder), "XSEM_PURE": "1"}, cwd=folder, capture_output=True, text=True,
        check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert report.exists(), done.stdout + done.stderr
    found: list[dict[str, str]] = json.loads(report.read_text())["cases"]
    return found


def unmet(folder: Path, *, uuid: str = "None", declared: str = "") -> list[str]:
    """Run the whole suite, and return the unmet MUSTs."""
    found = cases(folder, uuid=uuid, declared=declared)
    assert sum(each["outcome"] == "PASS" for each in found) > 150
    return [f"{each['requirement']}: {each['detail']}" for each in found
            if each["level"] == "MUST" and each["outcome"] in ("FAIL", "ERROR")]


@pytest.mark.slow
def test_device_with_a_uuid_conforms_with_an_exporter_without_one(tmp_path: Path) -> None:
    assert unmet(tmp_path, uuid="uuid.UUID(int=1)") == []


@pytest.mark.slow
@pytest.mark.parametrize("declared", [
    "resets_on_wait=False", "append_never_blocks=False", "release_never_blocks=False", "needs_handover=True"])
def test_device_that_promises_less_than_it_does_conforms(tmp_path: Path, declared: str) -> None:
    assert unmet(tmp_path, declared=declared) == []


@pytest.mark.slow
def test_slow_query_fails_the_requirement_of_queries_and_is_no_hang(tmp_path: Path) -> None:
    found = {each["requirement"]: each for each in cases(tmp_path, "XSEM-EVT-005", "XSEM-EVT-010", query_s=0.3)
             if each["outcome"] != "UNSUPPORTED"}
    assert found["XSEM-EVT-005"]["outcome"] == "FAIL"
    assert "a query of a fence does not return at once: it took 0.3" in found["XSEM-EVT-005"]["detail"]
    assert "hang" not in found["XSEM-EVT-010"]["detail"]
    assert "does not return" not in found["XSEM-EVT-010"]["detail"]


@pytest.mark.slow
def test_process_left_by_an_opening_is_named(tmp_path: Path) -> None:
    child = "subprocess.Popen(['sleep', '600'])"   # it inherits the standard streams, as a forked child does
    found, = cases(tmp_path, "XSEM-LIFE-007", opens=child)
    assert found["outcome"] == "FAIL"
    assert re.search(r"left a process behind its own process: \d+ \(sleep 600\)", found["detail"])
