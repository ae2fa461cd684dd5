"""examples/ray_transport.py: two actors of a local Ray cluster, with Ray from its wheel."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile

import pytest
from support.paths import ROOT


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_tensors_go_from_actor_to_actor() -> None:
    for each in ("ray", "torch"):
        if importlib.util.find_spec(each) is None:
            pytest.skip(f"{each} is not installed: pip install 'xsem[fleet]' torch")
    faulthandler.cancel_dump_traceback_later()   # of pytest: on a busy machine a cluster takes longer
    # Ray puts sockets into this folder, so its path is short.
    with tempfile.TemporaryDirectory(prefix="xsem-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        environment = os.environ | {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0",
                                    "PYTHONPATH": str(ROOT / "tests")}
        process = subprocess.Popen(
            [sys.executable, "-m", "support.ray_cluster", json.dumps({"one": {}}),
             str(ROOT / "examples" / "ray_transport.py"), "--elements", "4096"],
            env=environment, text=True, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            out, _ = process.communicate(timeout=400)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, out
    assert out.splitlines()[-1] == "3 tensors of 4096 elements, 0 wrong"
