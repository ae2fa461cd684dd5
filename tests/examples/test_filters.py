"""The examples without a GPU: their renderer, how they end, and the filters on a stand-in.

``array_library.py`` replaces torch and CuPy: it has the few functions that the filters use, and works on the legacy
stream of the stand-in for libcuda. So these tests show that the programs wait, signal and end correctly.
``tests/gpu/test_gpu_examples.py`` shows the programs with torch and CuPy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.example_programs import EXAMPLES, example, with_libraries, without

PROGRAMS = {"torch_filter": "PyTorch", "cupy_filter": "CuPy", "torch_trainer": "PyTorch", "tensor_to_vulkan": "PyTorch",
            "torch_to_cupy": "PyTorch"}
FILTERS = {"torch_filter": "torch", "cupy_filter": "cupy"}


@pytest.mark.variants
@pytest.mark.parametrize("name", PROGRAMS)
def test_help_names_the_frames(name: str) -> None:
    done = example(name, "--help")
    assert done.returncode == 0
    assert "--frames" in done.stdout


@pytest.mark.variants
@pytest.mark.parametrize("name", PROGRAMS)
def test_missing_package_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    done = example(name, environment=without(tmp_path, "torch", "cupy"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name}: {PROGRAMS[name]} is missing: pip install ")


def test_trainer_reports_a_missing_compiler(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    done = example("torch_trainer", environment=environment)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("torch_trainer: a C compiler is missing")


@pytest.mark.variants
@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(("wrong", "tally", "status"), [
    ("", "0 stale, 0 errors", 0), ("nothing", "70 stale, 0 errors", 1), ("one pixel", "0 stale, 70 errors", 1),
])
def test_filter_ends_with_its_tally(tmp_path: Path, name: str, wrong: str, tally: str, status: int) -> None:
    done = example(name, "--frames", "70", "--exporter", "host",
                   environment=with_libraries(tmp_path, FILTERS[name], wrong=wrong))
    assert done.returncode == status, done.stderr
    assert done.stdout.splitlines()[-1] == f"{name}: 70 frames, {tally}"
    assert done.stderr == ""


@pytest.mark.variants
@pytest.mark.parametrize("name", FILTERS)
def test_missing_device_is_reported_in_one_line(tmp_path: Path, name: str) -> None:
    done = example(name, "--device", "cuda:9", environment=with_libraries(tmp_path, FILTERS[name]))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name}: ")


HAND_OVER = """
import struct, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from renderer import Renderer
import xsem
from xsem import ipc

sender = Path(sys.argv[2]) if len(sys.argv) > 2 else None
with xsem.open_device("host") as device, Renderer("host", device, 9, sender=sender) as renderer:
    with ipc.receive(renderer.connection) as message:
        width, height = struct.unpack("<II", message.payload)
        timeline = device.import_semaphore(message.semaphores[0])
        memory = device.import_memory(message.memories[0])
    frame = memory.map_buffer(shape=(height, width, 4)).numpy()
    commands = device.create_command_list()

    def invert():
        frame[..., :3] ^= 255

    for number in range(9):
        commands.append_wait(timeline, 2 * number + 1)
        if number != 3:
            commands.append_work(invert)
        if number == 5:
            commands.append_work(lambda: frame[0].fill(7))
        commands.append_signal(timeline, 2 * number + 2)
    commands.synchronize()
    print(*renderer.tally())
"""


@pytest.mark.variants
@pytest.mark.parametrize("by", ["python", "c"])
def test_renderer_hands_frames_over_and_counts_them(tmp_path: Path, by: str) -> None:
    sender = []
    if by == "c":
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("needs a compiler (cc, gcc)")
        sender = [str(tmp_path / "send_frame")]
        subprocess.run([compiler, "-std=c99", "-o", sender[0], str(EXAMPLES / "c" / "send_frame.c")], check=True)
    done = subprocess.run([sys.executable, "-c", HAND_OVER, str(EXAMPLES), *sender], check=False, timeout=50, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 1\n"


@pytest.mark.slow
def test_renderer_that_fails_is_an_error(tmp_path: Path) -> None:
    done = example("torch_filter", "--exporter", "nosuch", environment=with_libraries(tmp_path, "torch"))
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("torch_filter: ")


def test_consecutive_frames_have_different_sums() -> None:
    """The trainer detects a stale frame by its sum."""
    import renderer

    sums = [int(renderer.draw(number).sum()) for number in range(300)]
    assert all(np.diff(sums))
