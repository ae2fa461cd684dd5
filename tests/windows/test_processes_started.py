"""An import of xsem starts no process (`platform.machine()` of CPython 3.11 starts one). Wine: starts are repeated."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from support import windows_objects as nt

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


@pytest.mark.parametrize(("code", "starts"), [(1359, 3), (5, 1)])
def test_start_of_a_process_is_repeated_only_for_the_error_of_wine(
    monkeypatch: pytest.MonkeyPatch, code: int, starts: int
) -> None:
    import _winapi

    tried = []

    def refused(*_arguments: Any) -> Any:
        tried.append(code)
        raise OSError(None, "refused", None, code)

    monkeypatch.setattr(_winapi, "CreateProcess", refused)
    nt.starts_again(monkeypatch)
    with pytest.raises(OSError, match="refused"):
        subprocess.Popen([sys.executable, "-c", ""])
    assert len(tried) == (starts if nt.under_wine() else 1)
