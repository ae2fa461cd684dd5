"""Test that the declarations of a device follow from its driver's answers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.vulkan_sim import BINARY, MEMORY, TIMELINE

from xsem.errors import UnsupportedError
from xsem.types import Feature, MemoryHandleType, SemaphoreHandleType
from xsem_vulkan import constants as vk
from xsem_vulkan import nodes
from xsem_vulkan.answers import Answers, ask, restricted
from xsem_vulkan.instance import Family, ImageLimits, MemoryTypes

SYNC, DMABUF = SemaphoreHandleType.SYNC_FD, MemoryHandleType.DMABUF_FD
LOCAL, VISIBLE, COHERENT, CACHED = 1, 2, 4, 8
PLENTY = ImageLimits((64, 64, 1), 7, 6, 6)
OF_TIMELINES = (Feature.HOST_SIGNAL, Feature.HOST_WAIT, Feature.READ_VALUE)
BOTH = frozenset({"VK_KHR_external_semaphore_fd", "VK_KHR_external_memory_fd", "VK_KHR_swapchain"})


@dataclass
class Physical:
    """A physical device with the answers of NVIDIA's driver for an H200, except for those that a test replaces."""

    name: str = "GPU"
    version: int = vk.VK_API_VERSION_1_2 + (1 << 12)
    timelines: bool = True
    offered: frozenset[str] = BOTH
    binary: int = 3
    timeline: int = 3
    sync_file: int = 0
    memory: int = 6
    dmabuf: int = 0
    host: int = 0
    alignment: int = 4096
    images: ImageLimits | None = PLENTY
    driver: int = 4
    queues: list[Family] = field(default_factory=lambda: [Family(0, 0xF, 16), Family(1, 0xC, 2), Family(2, 0xE, 8)])
    asked: list[tuple[int, bool]] = field(default_factory=list)

    def has_timelines(self) -> bool:
        return self.timelines

    def extensions(self) -> frozenset[str]:
        return self.offered

    def families(self) -> list[Family]:
        return self.queues

    def memory_types(self) -> MemoryTypes:
        return MemoryTypes((0, LOCAL, VISIBLE | COHERENT, VISIBLE | COHERENT | CACHED, LOCAL | VISIBLE | COHERENT))

    def semaphore_features(self, handle_type: int, *, timeline: bool) -> int:
        self.asked.append((handle_type, timeline))
        if handle_type == SYNC.native["vulkan"][1]:
            assert not timeline   # Vulkan makes no timeline of a sync file
            return self.sync_file
        return self.timeline if timeline else self.binary

    def buffer_features(self, handle_type: int, usage: int) -> int:
        assert usage & 3 == 3
        if handle_type == vk.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT:
            return self.host
        return self.memory if handle_type == MEMORY.native["vulkan"][1] else self.dmabuf

    def modifiers(self, pixels: int) -> dict[int, int]:
        return {0: 1, 1 << 56 | 1: 1, 1 << 56 | 9: 2} if pixels == vk.VK_FORMAT_R8G8B8A8_UNORM else {}

    def image_limits(
        self, pixels: int, type: int, usage: int, flags: int, handle_type: int, modifier: int | None = None
    ) -> ImageLimits | None:
        assert usage & 3 == 3
        assert (type, flags) == (1, 0)
        if modifier is not None:
            assert handle_type == DMABUF.native["vulkan"][1]
            return self.images if modifier in (0, 1 << 56 | 9) else None
        if handle_type != MEMORY.native["vulkan"][1]:
            return None
        return self.images

    def largest_allocation(self) -> int:
        return 2**32

    def largest_value_difference(self) -> int:
        return 2**31 - 1

    def host_pointer_alignment(self) -> int:
        return self.alignment

    def driver_id(self) -> int:
        return self.driver


def own(types: frozenset[Any]) -> set[Any]:
    """Return the types of the driver, without those of the host."""
    return {each for each in types if not each.portable}


def answers(**replies: Any) -> Answers:
    given: Any = Physical(**replies)
    return ask(given)


def test_driver_that_exports_everything_declares_everything() -> None:
    found = answers()
    declared = found.capabilities
    assert own(declared.semaphore_export) == own(declared.semaphore_import) == {BINARY, TIMELINE}
    assert own(declared.memory_export) == own(declared.memory_import) == {MEMORY}
    assert declared.features == {Feature.NATIVE_CONTEXT, Feature.MIPMAPPED_ARRAY, Feature.IMAGE_COPY,
                                 *OF_TIMELINES}
    assert own(declared.wait_before_signal) == {TIMELINE}   # the specification forbids it for a binary semaphore
    assert declared.max_value_difference == 2**31 - 1
    assert (found.queues, declared.independent_lists) == (8, 7)   # one queue is for blocking copies
    assert found.extensions == {"VK_KHR_external_semaphore_fd", "VK_KHR_external_memory_fd"}


@pytest.mark.parametrize("features", [0, 1, 2])
def test_semaphore_type_is_declared_as_far_as_the_driver_says(features: int) -> None:
    exported, imported = features & 1, features & 2
    declared = answers(timeline=features).capabilities
    assert own(declared.semaphore_export) == ({BINARY, TIMELINE} if exported else {BINARY})
    assert own(declared.semaphore_import) == ({BINARY, TIMELINE} if imported else {BINARY})
    assert declared.features & set(OF_TIMELINES) == (set(OF_TIMELINES) if features else set())
    assert own(declared.wait_before_signal) == ({TIMELINE} if features else set())
    declared = answers(binary=features).capabilities
    assert own(declared.semaphore_export) == ({BINARY, TIMELINE} if exported else {TIMELINE})
    assert own(declared.semaphore_import) == ({BINARY, TIMELINE} if imported else {TIMELINE})


@pytest.mark.parametrize("features", [0, 1, 2, 4])
def test_memory_type_is_declared_as_far_as_the_driver_says(features: int) -> None:
    declared = answers(memory=features).capabilities
    assert own(declared.memory_export) == ({MEMORY} if features & 2 else set())
    assert own(declared.memory_import) == ({MEMORY} if features & 4 else set())


def test_modifiers_are_declared_when_their_images_can_be_imported() -> None:
    offered = BOTH | {"VK_EXT_external_memory_dma_buf", "VK_EXT_image_drm_format_modifier"}
    found = answers(dmabuf=4, offered=offered)
    assert found.capabilities.drm_modifiers == {0, 1 << 56 | 9}
    assert "VK_EXT_image_drm_format_modifier" in found.extensions
    kept = restricted(found, found.extensions - {"VK_EXT_image_drm_format_modifier"})
    assert kept.capabilities.drm_modifiers == set()
    for more in ({"dmabuf": 2}, {"images": None}, {"offered": offered - {"VK_EXT_image_drm_format_modifier"}}):
        replies: dict[str, Any] = {"dmabuf": 4, "offered": offered, **more}
        lacking = answers(**replies)
        assert lacking.capabilities.drm_modifiers == set()
        assert "VK_EXT_image_drm_format_modifier" not in lacking.extensions


@pytest.mark.parametrize(("limits", "maps"), [
    ({}, True), ({"features": 4}, True), ({"features": 2}, False), ({"features": 7}, False), ({"levels": 0}, False),
    ({"layers": 0}, False), ({"extent": (64, 8, 1)}, False),
])
def test_images_are_declared_when_the_simplest_can_be_mapped(limits: dict[str, Any], maps: bool) -> None:
    images = PLENTY._replace(**limits)
    assert (Feature.MIPMAPPED_ARRAY in answers(images=images).capabilities.features) == maps
    assert Feature.MIPMAPPED_ARRAY not in answers(images=None).capabilities.features
    assert Feature.MIPMAPPED_ARRAY not in answers(memory=2, images=images).capabilities.features


@pytest.mark.parametrize("features", [0, 1, 2, 3])
def test_sync_file_is_declared_as_far_as_the_driver_says(features: int) -> None:
    declared = answers(sync_file=features).capabilities
    assert own(declared.semaphore_import) == ({BINARY, TIMELINE, SYNC} if features & 2 else {BINARY, TIMELINE})
    assert own(declared.semaphore_export) == ({BINARY, TIMELINE, SYNC} if features & 1 else {BINARY, TIMELINE})
    assert own(declared.wait_before_signal) == {TIMELINE}


def test_dmabuf_export_needs_extension_and_no_dedication() -> None:
    assert own(answers(dmabuf=6).capabilities.memory_import) == {MEMORY}   # without the extension xsem does not ask
    with_it = BOTH | {"VK_EXT_external_memory_dma_buf"}
    for features, exported in ((6, {MEMORY, DMABUF}), (7, {MEMORY}), (4, {MEMORY})):
        found = answers(dmabuf=features, offered=with_it)
        assert own(found.capabilities.memory_import) == {MEMORY, DMABUF}
        assert own(found.capabilities.memory_export) == exported
        assert "VK_EXT_external_memory_dma_buf" in found.extensions
    assert "VK_EXT_external_memory_dma_buf" not in answers(dmabuf=0, offered=with_it).extensions


def test_memory_that_must_be_dedicated_is_noted() -> None:
    assert answers(memory=7).dedicated_only == {MEMORY}
    assert answers(memory=6).dedicated_only == frozenset()


def test_nothing_is_asked_of_an_extension_that_is_not_there() -> None:
    given: Any = Physical(offered=frozenset({"VK_KHR_external_memory_fd"}))
    found = ask(given)
    assert given.asked == []
    assert own(found.capabilities.semaphore_export) == frozenset()
    assert own(found.capabilities.memory_export) == {MEMORY}
    assert found.extensions == {"VK_KHR_external_memory_fd"}
    assert answers(offered=frozenset()).extensions == frozenset()


@pytest.mark.parametrize(("replies", "capability"), [
    ({"version": vk.VK_API_VERSION_1_1}, "vulkan_1_2"), ({"timelines": False}, "timelineSemaphore"),
    ({"queues": [Family(0, vk.VK_QUEUE_TRANSFER_BIT, 4)]}, "queue"), ({"queues": []}, "queue"),
])
def test_device_that_cannot_be_used_is_refused(replies: dict[str, Any], capability: str) -> None:
    with pytest.raises(UnsupportedError, match="GPU") as raised:
        answers(**replies)
    assert raised.value.capability == capability


@pytest.mark.parametrize(("families", "chosen", "queues"), [
    ([Family(0, 0xF, 1)], 0, 1),                              # Intel, SwiftShader
    ([Family(0, 0xF, 1), Family(1, 0xE, 4)], 1, 4),           # AMD: one for graphics, four for compute
    ([Family(0, 0xF, 16), Family(2, 0xE, 8)], 0, 8),          # at most eight are used, so the first wins
    ([Family(0, 0xC, 16), Family(1, 0xE, 2)], 1, 2),          # a family only for copies is not taken
])
def test_family_with_the_most_queues_is_used(families: list[Family], chosen: int, queues: int) -> None:
    found = answers(queues=families)
    assert (found.family.index, found.queues) == (chosen, queues)
    assert found.capabilities.independent_lists == max(1, queues - 1)


@pytest.mark.parametrize(("allowed", "wanted", "preferred", "chosen"), [
    (0b11111, LOCAL, 0, 1), (0b10000, LOCAL, 0, 4), (0b00100, LOCAL, 0, None), (0b00001, 0, 0, 0),
    (0b11111, VISIBLE | COHERENT, VISIBLE | COHERENT | CACHED, 3), (0b10111, VISIBLE | COHERENT, CACHED, 2),
])
def test_memory_type_is_the_first_that_fits_best(
    allowed: int, wanted: int, preferred: int, chosen: int | None
) -> None:
    assert answers().memory_types.choose(allowed, wanted, preferred) == chosen


def test_protected_memory_is_never_chosen() -> None:
    assert MemoryTypes((LOCAL | vk.VK_MEMORY_PROPERTY_PROTECTED_BIT, LOCAL)).choose(3, LOCAL) == 1


# ---- nodes of files
@pytest.mark.parametrize("driver", [1, 4, 10])
def test_nvidias_opaque_fds_are_open_on_its_control_node(monkeypatch: pytest.MonkeyPatch, driver: int) -> None:
    monkeypatch.setattr(nodes, "_CONTROL", "/dev/zero")
    assert answers(driver=driver).node == (os.stat("/dev/zero").st_rdev if driver == 4 else None)


def test_nvidias_node_that_is_not_there_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_CONTROL", "/dev/none/such")
    assert answers(driver=4).node is None


HOST_MEMORY = MemoryHandleType.HOST_MEMORY_FD
OF_HOST = "VK_EXT_external_memory_host"


def test_timelines_of_the_host_are_bridged_on_every_device() -> None:
    declared = answers(offered=frozenset()).capabilities
    type = SemaphoreHandleType.HOST_TIMELINE_FD
    assert declared.bridged == declared.semaphore_import == declared.semaphore_export == declared.wait_before_signal
    assert declared.bridged == {type}


@pytest.mark.parametrize(("replies", "declared"), [
    ({}, True), ({"host": 2}, False), ({"host": 0, "driver": 10}, True), ({"alignment": 65536}, False),
    ({"offered": BOTH}, False),
])
def test_memory_of_the_host_needs_the_extension_the_use_and_pages(replies: dict[str, Any], declared: bool) -> None:
    found = answers(**{"host": 4, "offered": BOTH | {OF_HOST}, **replies})
    assert (HOST_MEMORY in found.capabilities.memory_import) == declared
    assert (HOST_MEMORY in found.capabilities.memory_export) == declared
    assert (OF_HOST in found.extensions) == declared
    assert HOST_MEMORY not in restricted(found, BOTH).capabilities.memory_import
