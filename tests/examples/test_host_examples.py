"""The examples that run on the CPU: they end with their tally, and name what is missing in one line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.example_programs import changed, run_program, without
from support.paths import ROOT
from support.vulkan_sim import environment as vulkan_environment

EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs" / "examples.md").read_text()

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")


def example(name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "error", str(EXAMPLES / name), *arguments], check=False, timeout=100,
                          env=os.environ | environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)


@pytest.mark.variants
@pytest.mark.parametrize(("name", "arguments", "last"), [
    ("kv_blocks.py", ["--frames", "9", "--consumers", "2"], "kv_blocks: 9 frames to 2 consumers, 0 failed"),
    ("ring_viewer.py", ["--frames", "9"], "ring_viewer: 9 frames, 0 wrong"),
    ("ring_encoder.py", ["--frames", "9"], "ring_encoder: 9 frames, 0 wrong"),
    ("asyncio_server.py", ["--frames", "4", "--clients", "3"], "asyncio_server: 3 clients of 4 frames, 0 failed"),
    ("c_exporter/receiver.py", ["--frames", "5"], "c_exporter: 5 frames, exporter's status 0"),
])
def test_example_sees_every_frame(name: str, arguments: list[str], last: str) -> None:
    if name.startswith("c_exporter") and not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    done = example(name, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == last
    assert done.stderr == ""


def test_c_exporter_reports_a_missing_compiler(tmp_path: Path) -> None:
    done = example("c_exporter/receiver.py", PATH=str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["c_exporter: a C compiler is missing: install gcc or clang"]


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [0, 3])
def test_frames_that_jax_reads_are_compared(tmp_path: Path, wrong: int) -> None:
    """NumPy replaces JAX here: its arrays have the two functions that the program uses."""
    (tmp_path / "jax.py").write_text("import numpy\nclass dlpack: from_dlpack = staticmethod(numpy.from_dlpack)\n")
    program = EXAMPLES / "jax_sums.py"
    if wrong:
        program = changed(tmp_path, "jax_sums", "draw(number).sum()", "draw(number + 1).sum()")
    done = run_program(program, "--frames", "3", environment=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout, done.stderr) == (int(wrong > 0), f"jax_sums: 3 frames, {wrong} wrong\n", "")


@pytest.mark.variants
@pytest.mark.parametrize("wrong", [False, True])
def test_image_frames_pass_on_swiftshader(tmp_path: Path, wrong: bool) -> None:
    program = EXAMPLES / "image_frames.py"
    if wrong:
        text = program.read_text()
        program = tmp_path / "image_frames.py"
        program.write_text(text.replace("[:] = picture(frame)", "[:] = picture(99)"))
        assert program.read_text() != text
    done = subprocess.run([sys.executable, str(program), "--device", "vulkan:0", "--array", "numpy", "--frames", "3"],
                          check=False, timeout=100, env=vulkan_environment(), capture_output=True, text=True,
                          stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (int(wrong), f"image_frames: 3 frames, {3 * wrong} wrong\n"), done.stderr


@pytest.mark.variants
@pytest.mark.parametrize(("name", "package"), [("image_frames.py", "PyTorch"), ("cupy_texture.py", "CuPy"),
                                               ("jax_sums.py", "JAX"), ("warp_texture.py", "Warp"),
                                               ("ray_pipeline.py", "Ray"), ("fleet_ray.py", "Ray")])
def test_missing_package_is_named_in_one_line(tmp_path: Path, name: str, package: str) -> None:
    done = example(name, **without(tmp_path, "torch", "cupy", "jax", "warp", "ray"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{name.removesuffix('.py')}: {package} is missing: pip install ")


# ---- the list of the examples
def test_page_lists_every_example() -> None:
    listed = set(re.findall(r"\]\(\.\./examples/([\w./-]+)\)", PAGE))
    programs = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")
                if "backend-template" not in path.parts and path.name != "renderer.py"}
    assert {name for name in listed if name.endswith(".py")} == programs
    assert all((EXAMPLES / name).exists() for name in listed)
