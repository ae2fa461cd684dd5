"""The examples with OpenGL, on zink: they count wrong frames, and know their own length.

Vulkan's SwiftShader takes the place of CUDA here, and NumPy that of torch. `tests/gpu/test_gpu_examples.py` runs them
with CUDA and torch.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.example_programs import EXAMPLES, changed, example, run_program, without
from support.opengl_sim import environment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zink is taken from Debian's packages")

ON_VULKAN = {"opengl_torch": ["--device", "vulkan", "--array", "numpy"],
             "opengl_texture": ["--device", "vulkan", "--array", "numpy"],
             "opengl_viewer": ["--device", "vulkan"]}


def on_zink(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program on zink; a copy of an example finds the other examples."""
    pytest.importorskip("moderngl", reason="moderngl is not installed")
    done = run_program(program, *arguments, environment=environment(PYTHONPATH=str(EXAMPLES)))
    assert [line for line in done.stderr.splitlines() if "Zink requirements" not in line] == []   # zink's own warning
    return done


@pytest.mark.variants
@pytest.mark.parametrize("name", ON_VULKAN)
def test_every_frame_is_right(name: str) -> None:
    done = on_zink(EXAMPLES / f"{name}.py", "--frames", "9", *ON_VULKAN[name])
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"{name}: 9 frames, 0 wrong")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "old", "new", "wrong"), [
    ("opengl_torch", "np.bitwise_not(pixels.numpy(), out=pixels.numpy())", "pass", 4),
    ("opengl_torch", "scene.read_into(pixels, components=4)", "pass", 4),
    ("opengl_torch", "texture.write(pixels)", "pass", 4),
    ("opengl_texture", "work.append_copy(level, rows)", "pass", 4),
    ("opengl_texture", "pixels[:] = draw(frame)", "pixels[:] = draw(0)", 3),
    ("opengl_viewer", "= draw(number).reshape", "= draw(number + (number == 4)).reshape", 1),
    ("opengl_viewer", "range(1, frames + 1)", "range(1, frames)", 1),
])
def test_wrong_frames_are_counted(tmp_path: Path, name: str, old: str, new: str, wrong: int) -> None:
    done = on_zink(changed(tmp_path, name, old, new), "--frames", "4", *ON_VULKAN[name])
    assert (done.returncode, done.stdout.splitlines()[-1]) == (1, f"{name}: 4 frames, {wrong} wrong")


@pytest.mark.slow
def test_slow_viewer_skips_frames(tmp_path: Path) -> None:
    """The viewer shows the first frame, and reads the next one when the producer has written all."""
    program = changed(tmp_path, "opengl_viewer", "            wrong += not",
                      "            if shown == 1:\n                from_producer.send(None)\n"
                      "                from_producer.recv()\n            wrong += not")
    waits = "number == 2 and to_viewer.recv(); upload.numpy()[:]"
    program.write_text(program.read_text().replace("upload.numpy()[:]", waits).replace(
        "# until `upload` can be written again", "; number == frames and to_viewer.send(None)"))
    done = on_zink(program, "--frames", "6", "--device", "vulkan")
    assert done.stdout.splitlines() == ["the viewer showed 2 frames and skipped 4", "opengl_viewer: 6 frames, 0 wrong"]


@pytest.mark.variants
@pytest.mark.parametrize(("name", "package"), [
    ("opengl_torch", "moderngl"), ("opengl_torch", "torch"), ("opengl_texture", "torch"), ("opengl_viewer", "moderngl"),
])
def test_missing_package_is_named_in_one_line(tmp_path: Path, name: str, package: str) -> None:
    done = example(name, environment=without(tmp_path, package))
    assert (done.returncode, done.stderr) == (2, f"{name}: {package} is missing: pip install {package}\n")


@pytest.mark.variants
@pytest.mark.parametrize("name", ON_VULKAN)
def test_machine_without_a_context_is_told_in_one_line(name: str) -> None:
    pytest.importorskip("moderngl", reason="moderngl is not installed")
    done = example(name, *ON_VULKAN[name], environment=environment(__EGL_VENDOR_LIBRARY_FILENAMES="/nowhere"))
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith(f"{name}: OpenGL has no EGL context: ")
