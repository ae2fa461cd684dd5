"""OpenGL on zink: frames and images with an application's own context, and what OpenGL itself would not refuse."""

from __future__ import annotations

import sys

import pytest
from support.opengl_sim import environment
from support.paths import DRIVERS
from support.programs import printed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="zink is taken from Debian's packages")


FRAMES = ["gl_frames", "vulkan:0", "binary", "60"]


@pytest.mark.parametrize("options", [
    FRAMES, [*FRAMES, "without-checks"], [*FRAMES, "pyopengl-for-glx"], ["gl_images"],
    [*FRAMES, "glx"], [*FRAMES, "glx", "without-checks"], [*FRAMES, "glx", "pyopengl-for-glx"],
], ids=" ".join)
def test_vulkan_and_an_applications_context_see_the_same(options: list[str]) -> None:
    pytest.importorskip("OpenGL", reason="PyOpenGL is not installed")
    display = [str(DRIVERS / "xvfb")] if "glx" in options else []
    assert printed(*options, prefix=display, environment=environment()) == "done\n"
