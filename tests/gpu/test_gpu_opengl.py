"""OpenGL of a real GPU, with an application's own context."""

from __future__ import annotations

import pytest
from support.gpu import needs_gpu
from support.programs import printed

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(150)]


@pytest.mark.parametrize("kind", ["binary", "timeline"])
@pytest.mark.parametrize("draws_on", ["vulkan:0", "cuda:0"])
def test_frames_go_both_ways_in_the_applications_context(draws_on: str, kind: str) -> None:
    needs_gpu("opengl", "vulkan")
    assert printed("gl_frames", draws_on, kind, "500", timeout_s=120) == "done\n"


@pytest.mark.slow
def test_a_wait_that_is_pending_for_a_minute_is_unharmed() -> None:
    needs_gpu("opengl", "vulkan")
    assert printed("gl_pending", "60", timeout_s=120) == "done\n"
