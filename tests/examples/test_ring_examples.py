"""The examples with rings: they count wrong frames, and run on the stand-in for libcuda.

`test_host_examples.py` runs them on the host, and `test_ray_pipeline.py` the one with Ray. On the stand-in,
`array_library.py` replaces torch. `tests/gpu/test_gpu_examples.py` runs them with torch and Vulkan.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.example_programs import EXAMPLES, changed, run_program, with_libraries, without

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rings need Linux")


@pytest.mark.variants
@pytest.mark.parametrize(("name", "old", "new", "last"), [
    ("kv_blocks", "= cache[number]", "= cache[number - (number == 2)]", "kv_blocks: 4 frames to 3 consumers, 3 failed"),
    ("ring_viewer", "draw(number).reshape", "draw(number + (number == 3)).reshape", "ring_viewer: 4 frames, 1 wrong"),
    ("ring_viewer", "range(frames)", "range(frames - 1)", "ring_viewer: 4 frames, 1 wrong"),
    ("ring_encoder", "drawn(number).reshape", "drawn(number | 1).reshape", "ring_encoder: 4 frames, 2 wrong"),
    ("ring_encoder", "range(frames)", "range(frames - 1)", "ring_encoder: 4 frames, 1 wrong"),
    ("asyncio_server", "bytes([frame.number % 251])", "bytes([7])", "asyncio_server: 4 clients of 4 frames, 4 failed"),
])
def test_wrong_frames_are_counted(tmp_path: Path, name: str, old: str, new: str, last: str) -> None:
    done = run_program(changed(tmp_path, name, old, new), "--frames", "4")
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (1, [last]), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arguments", "last"), [
    ("kv_blocks", [], "kv_blocks: 9 frames to 3 consumers, 0 failed"),
    ("ring_viewer", ["--exporter", "host"], "ring_viewer: 9 frames, 0 wrong"),
    ("ring_encoder", [], "ring_encoder: 9 frames, 0 wrong"),
    ("asyncio_server", ["--exporter", "cuda:0"], "asyncio_server: 4 clients of 9 frames, 0 failed"),
])
def test_example_sees_every_frame_on_cuda(tmp_path: Path, name: str, arguments: list[str], last: str) -> None:
    done = run_program(EXAMPLES / f"{name}.py", "--frames", "9", "--device", "cuda:0", *arguments,
                       environment=with_libraries(tmp_path, "torch"))
    assert (done.returncode, done.stdout.splitlines()[-1:], done.stderr) == (0, [last], "")


@pytest.mark.variants
@pytest.mark.parametrize("name", ["kv_blocks", "ring_viewer", "ring_encoder"])
def test_missing_torch_is_named_in_one_line(tmp_path: Path, name: str) -> None:
    done = run_program(EXAMPLES / f"{name}.py", "--device", "cuda:0", environment=without(tmp_path, "torch"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name}: Py")
    assert " is missing: pip install " in line
