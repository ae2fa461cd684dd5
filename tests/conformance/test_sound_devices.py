"""A sound device conforms, also with a UUID and with promises weaker than what it does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.plugin_folder import write_plugin

CODE = """
import dataclasses, uuid
from xsem import spi
from xsem.types import DeviceInfo
from xsem_host.device import HostDevice
from xsem_host.suite_hooks import HostHooks

class Device(HostDevice):
    @property
    def capabilities(self):
        return dataclasses.replace(super().capabilities, {declared})

class Sound(spi.Backend):
    name = "sound"
    spi_version = 2
    def devices(self):
        return [DeviceInfo(id="sound:0", backend="sound", index=0, name="host", uuid={uuid})]
    def open(self, index):
        return Device()
    def suite_hooks(self, driver):
        return HostHooks()

@spi.hookimpl
def xsem_register_backends(register):
    register(Sound())
"""


def unmet(folder: Path, *, uuid: str = "None", declared: str = "") -> list[str]:
    """Run the whole suite on a device that is `host` except for its UUID and declarations. Return the unmet MUSTs."""
    write_plugin(folder, "sound", CODE.format(uuid=uuid, declared=declared))
    report = folder / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "xsem", "conformance", "run", "--device", "sound:0", "--exporter", "host",
         "--no-quirks", "--patience", "20", "--report", str(report)],
        env={**os.environ, "PYTHONPATH": str(folder), "XSEM_PURE": "1"}, cwd=folder, capture_output=True, text=True,
        check=False, stdin=subprocess.DEVNULL, timeout=300)
    assert report.exists(), done.stdout + done.stderr
    found = json.loads(report.read_text())["cases"]
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
