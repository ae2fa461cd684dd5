"""What a context of each driver declares, from recorded answers."""

from __future__ import annotations

import sys

import pytest

from xsem.types import Feature, SemaphoreHandleType
from xsem_opengl.answers import TIMELINES, Answers, capabilities_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the backend runs on Linux")

EXTENSIONS = frozenset({"GL_EXT_semaphore_fd", "GL_EXT_memory_object_fd"})
NVIDIA = Answers("NVIDIA Corporation", "NVIDIA H200/PCIe/SSE2", "4.6.0 NVIDIA 580.159.04", EXTENSIONS, None, None)
ZINK = Answers("Mesa", "zink Vulkan 1.3(SwiftShader Device (Subzero))", "4.5 Mesa 22.3.6", EXTENSIONS, None, None)
IRIS = Answers("Intel", "Mesa Intel(R) UHD Graphics 770 (ADL-S GT1)", "4.6 Mesa 25.0.7", EXTENSIONS, None, None)


def test_quirks_belong_to_their_driver() -> None:
    assert NVIDIA.quirks.offsets
    assert not any((NVIDIA.quirks.skips_second_wait, NVIDIA.quirks.drops_idle_signals, NVIDIA.quirks.early_fences))
    assert all((ZINK.quirks.skips_second_wait, ZINK.quirks.drops_idle_signals, ZINK.quirks.early_fences))
    assert not any(IRIS.quirks)   # not measured
    assert [capabilities_of(each, exporter=False).max_pending for each in (NVIDIA, ZINK, IRIS)] == [5000, None, None]


def test_levels_and_offsets_are_declared_where_offsets_count() -> None:
    declared = [capabilities_of(each, exporter=False).features & {Feature.MIPMAPPED_ARRAY, Feature.IMAGE}
                for each in (NVIDIA, ZINK)]
    assert declared == [{Feature.MIPMAPPED_ARRAY}, {Feature.IMAGE}]


def test_portable_timelines_need_timelines_and_an_exporter() -> None:
    timelines = NVIDIA._replace(extensions=EXTENSIONS | {TIMELINES})
    declared = [capabilities_of(*each, exporter=exporter).bridged
                for *each, exporter in ((timelines, True), (timelines, False), (ZINK, True))]
    assert declared == [{SemaphoreHandleType.HOST_TIMELINE_FD}, frozenset(), frozenset()]
