"""examples/ray_pipeline.py: two processes without Ray, refusals, and two actors of a local Ray cluster."""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest
from support.paths import ROOT

from xsem.ipc import tickets

# Not an import statement: mypy would follow it to Ray, which need not be installed.
ray_pipeline: Any = importlib.import_module("ray_pipeline")
EXAMPLE = ROOT / "examples" / "ray_pipeline.py"


_ON_CUDA = """
import subprocess, sys
import ray_pipeline
made = ray_pipeline.Renderer("host", "cuda:0", "cuda:0")
read = "import ray_pipeline, sys; print(ray_pipeline.Filter('cuda:0').read(sys.argv[1]))"
for frame in (1, 2, 3):
    subprocess.run([sys.executable, "-c", read, made.render(frame)], check=True, timeout=60)
late = made.render(4)
made.render(5)
subprocess.run([sys.executable, "-c", read, late], check=True, timeout=60)
made.close()
"""


@pytest.fixture
def renderer() -> Iterator[Any]:
    made = ray_pipeline.Renderer("host", "host")
    yield made
    made.close()


def read(ticket: str) -> str:
    reader = ray_pipeline.Filter("host")
    answer: str = reader.read(ticket)
    reader.close()
    return answer


def test_another_process_reads_the_frames_of_the_renderer(renderer: Any) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as other:
        tickets_of_frames = (renderer.render(frame) for frame in range(1, 4))
        assert [other.submit(read, ticket).result(50) for ticket in tickets_of_frames] == ["right"] * 3


@pytest.mark.slow
def test_frames_in_memory_of_cuda() -> None:
    # Two devices of CUDA on the stand-in, in two processes; the host device creates the timeline.
    done = subprocess.run(
        [str(ROOT / "tests" / "drivers" / "run"), "cuda", "--", sys.executable, "-c", _ON_CUDA], check=False,
        timeout=100, env=os.environ | {"PYTHONPATH": f"{ROOT / 'examples'}{os.pathsep}{ROOT / 'tests'}"},
        capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.stdout.splitlines() == ["right"] * 3 + ["wrong"], done.stdout + done.stderr


def test_frame_that_was_overwritten_is_wrong(renderer: Any) -> None:
    ticket = renderer.render(1)
    second = renderer.render(2)
    assert read(ticket) == "wrong"
    assert read(second) == "right"


def test_ticket_on_another_node_is_refused_with_the_reason(
    renderer: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticket = renderer.render(1)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(tickets, "system_id", lambda: "00000000-0000-4000-8000-000000000000")
        answer = read(ticket)
    assert ray_pipeline.verdict([answer, "right"]) == 2
    shown = capsys.readouterr().out
    assert "refused (other_host)" in shown
    assert "do not cross machines" in shown
    assert ray_pipeline.verdict(["right", "wrong"]) == 1
    assert ray_pipeline.verdict([read(ticket)]) == 0


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_two_actors_of_a_node_hand_frames_on() -> None:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: pip install 'xsem[fleet]'")
    faulthandler.cancel_dump_traceback_later()   # of pytest: on a busy machine a cluster takes longer
    # Ray puts sockets into this folder, so its path is short.
    with tempfile.TemporaryDirectory(prefix="xsem-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        environment = os.environ | {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0",
                                    "PYTHONPATH": str(ROOT / "tests")}
        process = subprocess.Popen(
            [sys.executable, "-m", "support.ray_cluster", json.dumps({"one": {}}), str(EXAMPLE), "--frames", "10"],
            env=environment, text=True, start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            out, _ = process.communicate(timeout=400)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert process.returncode == 0, out
    assert out.splitlines()[-1] == "10 frames right, 0 wrong, 0 refused"
