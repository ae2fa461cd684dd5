"""Test the examples that share an existing tensor, on the stand-ins for libcuda and for the array libraries.

`array_library.py` allocates as torch does, so `Device.share` runs through the CUDA backend. A second CUDA device reads
in place of Vulkan, and the host device creates the timeline. `tests/gpu/test_gpu_examples.py` runs the examples with
torch, CuPy and Vulkan.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.example_programs import EXAMPLES, changed, run_program, with_libraries

ON_STAND_IN = {"tensor_to_vulkan": ["--reader", "cuda", "--exporter", "host"], "torch_to_cupy": ["--exporter", "host"]}
DRAWN = "torch.from_numpy(draw(frame))"


def test_vulkans_stand_in_reads_every_frame_of_the_tensor(tmp_path: Path) -> None:
    done = run_program(EXAMPLES / "tensor_to_vulkan.py", "--frames", "20", *ON_STAND_IN["tensor_to_vulkan"],
                       environment=with_libraries(tmp_path, "torch"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "tensor_to_vulkan: 20 frames, 0 wrong\n", "")


@pytest.mark.variants
@pytest.mark.parametrize(("old", "new"), [
    (DRAWN, "torch.from_numpy(draw(frame + (frame == 2)))"),
    ("map_buffer(shared.offset,", "map_buffer(0,"),   # the tensor is not the start of the allocation
], ids=["picture", "offset"])
def test_wrong_frames_of_the_tensor_are_counted(tmp_path: Path, old: str, new: str) -> None:
    program = changed(tmp_path, "tensor_to_vulkan", old, new)
    done = run_program(program, "--frames", "3", *ON_STAND_IN["tensor_to_vulkan"],
                       environment=with_libraries(tmp_path, "torch"))
    wrong = 1 if old == DRAWN else 3
    assert (done.returncode, done.stdout) == (1, f"tensor_to_vulkan: 3 frames, {wrong} wrong\n"), done.stderr


def test_cupy_process_and_torch_process_see_each_others_frames(tmp_path: Path) -> None:
    done = run_program(EXAMPLES / "torch_to_cupy.py", "--frames", "20", *ON_STAND_IN["torch_to_cupy"],
                       environment=with_libraries(tmp_path, "torch", "cupy"))
    assert (done.returncode, done.stdout, done.stderr) == (
        0, "torch_to_cupy: 20 frames, 0 wrong in CuPy, 0 wrong in torch\n", "")


@pytest.mark.slow
def test_frame_that_cupy_spoils_is_counted_by_torch(tmp_path: Path) -> None:
    done = run_program(EXAMPLES / "torch_to_cupy.py", "--frames", "3", *ON_STAND_IN["torch_to_cupy"],
                       environment=with_libraries(tmp_path, "torch", "cupy", wrong="one pixel"))
    assert (done.returncode, done.stdout) == (
        1, "torch_to_cupy: 3 frames, 0 wrong in CuPy, 3 wrong in torch\n"), done.stderr


@pytest.mark.slow
def test_frame_that_torch_spoils_is_counted_by_cupy(tmp_path: Path) -> None:
    program = changed(tmp_path, "torch_to_cupy", DRAWN, "torch.from_numpy(draw(frame + 1))")
    done = run_program(program, "--frames", "3", *ON_STAND_IN["torch_to_cupy"],
                       environment=with_libraries(tmp_path, "torch", "cupy"))
    assert (done.returncode, done.stdout) == (
        1, "torch_to_cupy: 3 frames, 3 wrong in CuPy, 3 wrong in torch\n"), done.stderr


@pytest.mark.slow
def test_cupy_process_that_ends_early_is_reported_at_once(tmp_path: Path) -> None:
    program = changed(tmp_path, "torch_to_cupy", "    wrong = 0\n    with frames_desc,",
                      "    wrong = sys.exit(3)\n    with frames_desc,")
    done = run_program(program, *ON_STAND_IN["torch_to_cupy"], environment=with_libraries(tmp_path, "torch", "cupy"),
                       timeout_s=25)   # the time limit of the program itself is longer
    assert (done.returncode, done.stderr) == (1, "torch_to_cupy: the CuPy process has ended without an answer\n")


@pytest.mark.variants
@pytest.mark.parametrize("name", ON_STAND_IN)
def test_allocator_that_cannot_share_is_reported_with_the_setting(tmp_path: Path, name: str) -> None:
    environment = with_libraries(tmp_path, "torch", "cupy") | {"PYTORCH_CUDA_ALLOC_CONF": "backend:native"}
    done = run_program(EXAMPLES / f"{name}.py", *ON_STAND_IN[name], environment=environment)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name}: ")
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in line
