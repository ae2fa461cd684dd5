"""The demo, in small: every mode, and its ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from xsem.cli import app
from xsem.cli.demo import renderer, show
from xsem.cli.demo.picture import draw, filter_in_place
from xsem.cli.demo.plan import Plan, hear

SMALL = ["--frames", "7", "--width", "48", "--height", "32"]


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "xsem", "demo", *arguments], cwd=folder, capture_output=True,
                          text=True, check=False, timeout=50, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("binary", [[], ["--binary"]], ids=["timeline", "binary"])
def test_every_frame_is_filtered(tmp_path: Path, binary: list[str]) -> None:
    sheet = tmp_path / "new" / "sheet.png" if binary else tmp_path / "demo-host.png"
    done = demo(tmp_path, *SMALL, *binary, *(["--output", str(sheet)] if binary else []))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "demo: 7 frames, 0 stale, 0 errors"
    assert str(sheet) in done.stdout
    with Image.open(sheet) as picture:
        picture.load()
        assert picture.size == (8 + 6 * (48 + 8), 2 * (32 + 18 + 8) + 8)


def test_options_reach_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Plan, Path]] = []

    def run(plan: Plan, output: Path) -> int:
        asked.append((plan, output))
        return 0

    monkeypatch.setattr(show, "run", run)
    assert app.run(["demo", "--device", "cuda:1", "--exporter", "vulkan"]) == 0
    assert app.run(["demo", "--binary", "--without-wait", "--frames", "3", "--width", "9", "--height", "8", "--timeout",
                    "2.5", "--output", "x/y.png"]) == 0
    assert asked == [
        (Plan(device="cuda:1", exporter="vulkan", binary=False, without_wait=False, frames=120, width=640, height=360,
              timeout_s=30.0), Path("demo-cuda-1.png")),
        (Plan(device="host", exporter="host", binary=True, without_wait=True, frames=3, width=9, height=8,
              timeout_s=2.5), Path("x/y.png")),
    ]


@pytest.mark.parametrize("binary", [[], ["--binary"]], ids=["timeline", "binary"])
def test_without_the_wait_every_frame_is_stale(tmp_path: Path, binary: list[str]) -> None:
    done = demo(tmp_path, *SMALL, "--without-wait", *binary)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "demo: 7 frames, 7 stale, 0 errors"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["--device", "nobody"], 3), (["--exporter", "nobody"], 3), (["--device", "host:7"], 3), (["--device", "a b"], 2)],
)
def test_device_that_is_not_there(tmp_path: Path, arguments: list[str], status: int) -> None:
    done = demo(tmp_path, *SMALL, *arguments)
    assert done.returncode == status
    assert done.stderr.startswith("xsem: ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("spoil", "stale", "errors"), [("nothing", 0, 0), ("filter", 1, 0), ("a pixel", 0, 1)])
def test_a_frame_is_right_stale_or_wrong(spoil: str, stale: int, errors: int) -> None:
    picture = draw(5, (16, 16, 4))
    found = picture.copy()
    if spoil != "filter":
        filter_in_place(found)
    if spoil == "a pixel":
        found[7, 3, 1] ^= 1
    tally = renderer.Tally("numpy")
    renderer._count(tally, picture, found)
    assert (tally.frames, tally.stale, tally.errors) == (1, stale, errors)


@pytest.mark.timeout(30)
def test_compute_process_is_ended_when_the_renderer_fails() -> None:
    plan = Plan(device="host", exporter="host", binary=False, without_wait=False, frames=3, width=9, height=8,
                timeout_s=600)
    with pytest.raises(ZeroDivisionError), show._compute_process(plan) as sock:
        hear(sock, 20)   # it is up, and waits for the descriptors
        raise ZeroDivisionError


def test_killed_compute_process_ends_the_demo_in_words(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "xsem", "demo", "--frames", "100000", "--timeout", "2", "--output", "x.png"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "30 of" in line:
                break
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        began = time.monotonic()
        _, errors = process.communicate(timeout=40)
        assert time.monotonic() - began < 40
        assert process.returncode == 1
        assert errors.startswith("xsem: ")
        assert "Traceback" not in errors
