"""An import of xsem, and an open host device, start no process: `platform.machine()` of CPython 3.11 starts cmd.exe."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
sys.addaudithook(lambda event, _: sys.exit(event) if event == "subprocess.Popen" else None)
import xsem
with xsem.open_device("host") as device:
    print(device.info.name, device.info.driver_version)
"""


def test_import_and_the_host_device_start_no_process() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, capture_output=True, text=True,
                         check=False, timeout=100)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "host (" in ran.stdout
