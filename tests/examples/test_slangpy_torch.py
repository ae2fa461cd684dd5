"""Test examples/slangpy_torch.py with a stand-in for slangpy: on SwiftShader, and on the stand-in for libcuda.

slangpy's wheel has 290 MB, and it needs VK_KHR_xlib_surface, which SwiftShader lacks. SwiftShader shares no timelines,
so both sides wait on the host there. On the stand-in for libcuda, the fence orders the streams, and a stand-in for
torch inverts. `tests/gpu/test_gpu_examples.py` runs the example with slangpy and torch.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.example_programs import EXAMPLES, changed, example, run_program, with_libraries, without
from support.paths import TESTS
from support.vulkan_sim import environment as vulkan_environment

LIBRARY = TESTS / "support" / "slangpy_library.py"
HERE = ["--device", "vulkan:0", "--array", "numpy", "--wait", "host", "--frames", "3"]


def with_slangpy(folder: Path) -> dict[str, str]:
    """Return an environment with SwiftShader and the stand-in for slangpy."""
    shutil.copy(LIBRARY, folder / "slangpy.py")
    before = os.environ.get("PYTHONPATH")
    return vulkan_environment(PYTHONPATH=f"{folder}:{before}" if before else str(folder))


@pytest.mark.variants
@pytest.mark.parametrize("wrong", ["", "nothing"])
def test_fence_orders_slangpy_and_torch(tmp_path: Path, wrong: str) -> None:
    shutil.copy(LIBRARY, tmp_path / "slangpy.py")
    done = run_program(EXAMPLES / "slangpy_torch.py", "--frames", "10",
                       environment=with_libraries(tmp_path, "torch", wrong=wrong))
    found = 10 if wrong else 0
    assert (done.returncode, done.stdout, done.stderr) == (
        int(found > 0), f"slangpy_torch: 10 frames, {found} wrong\n", "")


@pytest.mark.slow
@pytest.mark.variants
@pytest.mark.parametrize("copy", ["commands.append_copy(rows, level)", "commands.append_copy(level, rows)"])
def test_texture_without_a_copy_is_counted(tmp_path: Path, copy: str) -> None:
    shutil.copy(LIBRARY, tmp_path / "slangpy.py")
    program = changed(tmp_path, "slangpy_torch", copy, "pass")
    done = run_program(program, "--frames", "3", environment=with_libraries(tmp_path, "torch"))
    assert (done.returncode, done.stdout) == (1, "slangpy_torch: 3 frames, 3 wrong\n"), done.stderr


def test_every_frame_is_inverted_on_the_host(tmp_path: Path) -> None:
    done = run_program(EXAMPLES / "slangpy_torch.py", *HERE, environment=with_slangpy(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "slangpy_torch: 3 frames, 0 wrong\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["(buffer,)", "(level,)"])
def test_resource_that_is_not_inverted_is_counted(tmp_path: Path, shared: str) -> None:
    program = changed(tmp_path, "slangpy_torch", "for shared in (buffer, level):", f"for shared in {shared}:")
    done = run_program(program, *HERE, environment=with_slangpy(tmp_path))
    assert (done.returncode, done.stdout) == (1, "slangpy_torch: 3 frames, 3 wrong\n"), done.stderr


@pytest.mark.slow
def test_allocation_size_is_the_one_that_vulkan_requires(tmp_path: Path) -> None:
    """A texture of 320 x 240 pixels has 307200 bytes here. With the size of another resource, the import fails."""
    program = changed(tmp_path, "slangpy_torch", "allocation_size=required.size", "allocation_size=required.size // 2")
    done = run_program(program, *HERE, environment=with_slangpy(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("slangpy_torch: ")


@pytest.mark.variants
@pytest.mark.parametrize("package", ["slangpy", "torch"])
def test_missing_package_is_named_in_one_line(tmp_path: Path, package: str) -> None:
    (tmp_path / "slangpy.py").write_text("")
    done = example("slangpy_torch", environment=without(tmp_path, package))
    assert (done.returncode, done.stderr) == (2, f"slangpy_torch: {package} is missing: pip install {package}\n")
