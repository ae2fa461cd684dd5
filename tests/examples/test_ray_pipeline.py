"""examples/ray_pipeline.py: processes without Ray, a refusal, and three actors of a local Ray cluster."""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import os
import subprocess
import sys
from typing import Any

import pytest
from support.paths import ROOT
from support.ray_cluster import on_one_node

from xsem.ipc import tickets

# Not an import statement: mypy would follow it to Ray, which need not be installed.
ray_pipeline: Any = importlib.import_module("ray_pipeline")
EXAMPLE = ROOT / "examples" / "ray_pipeline.py"


_ACTORS = """
import subprocess, sys, threading
import ray_pipeline

device = sys.argv[1]
read = ("import ray_pipeline, sys; made = ray_pipeline.Filter(sys.argv[1]); print(made.join(sys.argv[2]), flush=True); "
        "sys.stdin.readline(); print(made.read(3))")
renderer = ray_pipeline.Renderer(device, 2)
filters = [subprocess.Popen([sys.executable, "-c", read, device, renderer.ticket()], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True) for _ in range(2)]
print(*[each.stdout.readline().strip() for each in filters])
rendering = threading.Thread(target=renderer.render, args=(3,))
rendering.start()
print(*[each.communicate("go\\n", timeout=60)[0].strip() for each in filters])
rendering.join()
"""


@pytest.mark.variants
@pytest.mark.parametrize("device", ["host", "cuda:0"])
def test_other_processes_read_the_frames_of_the_renderer(device: str) -> None:
    """Two filters and the renderer are processes of their own. CUDA is the stand-in."""
    prefix = [] if device == "host" else [str(ROOT / "tests" / "drivers" / "run"), "cuda", "--"]
    done = subprocess.run(
        [*prefix, sys.executable, "-c", _ACTORS, device], check=False, timeout=100,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'examples'}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stdout.splitlines() == ["joined joined", f"{[True] * 3} {[True] * 3}"], done.stderr


def test_ticket_on_another_node_is_refused_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    renderer, reader = ray_pipeline.Renderer("host", 1), ray_pipeline.Filter("host")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tickets, "system_id", lambda: "00000000-0000-4000-8000-000000000000")
        refused = reader.join(renderer.ticket())
    assert ray_pipeline.verdict([refused, "joined"], []) == 2
    shown = capsys.readouterr().out
    assert "refused (other_host)" in shown
    assert "do not cross machines" in shown
    assert (reader.join(renderer.ticket()), reader.read(0)) == ("joined", [])
    renderer.render(0)
    assert ray_pipeline.verdict(["joined"], [True, False]) == 1


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_actors_of_a_node_hand_frames_on() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'xsem[fleet]'")
    faulthandler.cancel_dump_traceback_later()   # of pytest: on a busy machine a cluster takes longer
    status, out = on_one_node(EXAMPLE, "--frames", "10")
    assert status == 0, out
    assert out.splitlines()[-1] == "20 frames right, 0 wrong, 0 filters refused"
