"""In a subinterpreter, xsem refuses what would start a thread, and the process goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters

inside = '''
import xsem
try:
    {act}
except (xsem.XsemError) as error:
    print(type(error).__name__, error.reason, flush=True)
'''
isolated, act = sys.argv[1] == "isolated", sys.argv[2]
try:
    made = interpreters.create(isolated=isolated)
except TypeError:   # Python 3.13 and newer
    made = interpreters.create("isolated" if isolated else "legacy")
failed = None
try:
    failed = interpreters.run_string(made, inside.replace("{act}", act))
except Exception as error:
    failed = error
if failed is not None:   # with a GIL of its own, a module of C refuses its import
    print("ImportError" if "support" in str(failed) else failed, flush=True)
interpreters.destroy(made)
import xsem
with xsem.open_device("host") as device:
    commands = device.create_command_list()
    commands.append_signal(device.create_timeline(), 1)
    commands.synchronize(timeout_s=50)
ticket = xsem.ipc.offer(payload=b"", lifetime_s=0.001)
print("main")
"""


@pytest.mark.variants
@pytest.mark.parametrize("act", ["xsem.open_device('host')", "xsem.ipc.offer(payload=b'frame')"],
                         ids=["device", "offer"])
@pytest.mark.parametrize("kind", ["isolated", "legacy"])
def test_subinterpreter_is_refused_and_can_end(kind: str, act: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error::ResourceWarning", "-c", PROGRAM, kind, act],
                          capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert last == "main"
    assert first == "UnsupportedError subinterpreter" or (first == "ImportError" and sys.version_info >= (3, 12))
