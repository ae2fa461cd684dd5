"""Test the declared number of lists against CUDA_DEVICE_MAX_CONNECTIONS, as the driver was started with it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from support.cuda_sim import stand_in_environment

from xsem_cuda import connections
from xsem_cuda.capabilities import Attributes, capabilities_of

VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"


@pytest.mark.parametrize(("text", "number"), [
    (None, 8), ("1", 1), ("8", 8), ("32", 32),
    # not documented, and measured on an H200
    ("0", 8), ("33", 31), ("1000", 31), ("-1", 31), ("abc", 8), ("4x", 4), (" 4", 4), ("", 8), ("0x10", 8),
])
def test_number_of_hardware_queues(text: str | None, number: int) -> None:
    assert connections.connections(text) == number
    assert capabilities_of("linux", Attributes(connections=number)).independent_lists == number


PROGRAM = """
import json, os, time
import xsem
from xsem.types import SemaphoreHandleType

NAME = "CUDA_DEVICE_MAX_CONNECTIONS"
BEFORE, LISTED, OPENED = {settings!r}

def have(text):
    if text is not None:
        os.environ[NAME] = text

have(BEFORE)
xsem.devices("cuda")
have(LISTED)
xsem.open_device("cuda:0").release()
have(OPENED)
device, host = xsem.open_device("cuda:0"), xsem.open_device("host")
declared = device.capabilities.independent_lists
there = host.create_timeline()
with there.export(for_device=device) as desc:
    gate = device.import_semaphore(desc)
lists = [device.create_command_list() for _ in range(declared + 1)]
filled = [device.host_buffer(64) for _ in lists]

for commands, buffer in zip(lists[:-1], filled):    # one more list waits each time
    lists[-1].append_fill(buffer, b"\\x5a")
    lists[-1].synchronize(timeout_s=30)
    commands.append_wait(gate, 1)
last = device.create_command_list()
last.append_fill(filled[-1], b"\\x5a")
causes = []
try:
    last.synchronize(timeout_s=0.2)
except xsem.WaitTimeoutError:
    try:
        lists[0].synchronize(timeout_s=0)
    except xsem.WaitTimeoutError as error:
        causes = error.likely_causes
there.host_signal(1)
for commands in (*lists, last):
    commands.synchronize(timeout_s=30)
assert bytes(filled[-1].numpy()) == b"\\x5a" * 64
checks = [each.detail for each in xsem.plugins.registry().get("cuda").checks()
          if each.name == "hardware queues"]
print(json.dumps([declared, causes, checks]))
"""


def on_driver(*settings: str | None, **environment: str) -> Any:
    """Return the declared number, the causes of a timeout behind as many waiting lists, and the lines of doctor."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM.format(settings=settings)], text=True, check=False, timeout=100,
                         env=stand_in_environment(**environment), capture_output=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.variants
@pytest.mark.parametrize(("number", "environment"), [(8, {}), (1, {VARIABLE: "1"}), (3, {VARIABLE: "3"}),
                                                     (32, {VARIABLE: "32"})])
def test_all_but_one_of_the_declared_lists_may_wait(
    monkeypatch: pytest.MonkeyPatch, number: int, environment: dict[str, str]
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    declared, causes, checks = on_driver(None, None, None, **environment)
    assert declared == number
    told = f"{number} ({VARIABLE} {f'was {str(number)!r} when CUDA started' if environment else 'is not set'}): "
    assert [each.startswith(told) for each in checks] == [True]
    assert any(told in each for each in causes) is (number < 8)


@pytest.mark.variants
@pytest.mark.parametrize(("settings", "number"), [(("2", None, None), 2), (("2", "5", "1"), 2), ((None, "1", None), 8),
                                                 ((None, None, "1"), 8)])
def test_change_after_the_start_of_cuda_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch, settings: tuple[str | None, ...], number: int
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert on_driver(*settings)[0] == number


def test_undocumented_value_is_in_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "setting", lambda: "many")
    assert connections.check().detail.startswith(f"8 ({VARIABLE} was 'many' when CUDA started)")
