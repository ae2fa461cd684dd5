"""Test what the CUDA backend declares on each platform and device."""

from __future__ import annotations

import pytest

from xsem.types import Feature, MemoryHandleType, OsHandleKind, SemaphoreHandleType
from xsem_cuda.capabilities import Attributes, capabilities_of
from xsem_cuda.images import known_formats
from xsem_cuda.undeclared import undeclared_causes

S = SemaphoreHandleType
M = MemoryHandleType
MODERN = Attributes(timeline=True, compute_capability=(9, 0), dmabuf_type=True)


def test_linux_declares_only_fds() -> None:
    capabilities = capabilities_of("linux", MODERN)
    assert capabilities.semaphore_import == {S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_FD}
    assert capabilities.memory_import == {M.OPAQUE_FD}
    assert capabilities.wait_before_signal == {S.OPAQUE_FD, S.TIMELINE_SEMAPHORE_FD}


@pytest.mark.parametrize(("registers", "words"), [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("platform", ["linux", "win32", "darwin"])
def test_portable_types_need_linux_and_the_attributes(platform: str, registers: bool, words: bool) -> None:
    declared = capabilities_of(platform, MODERN._replace(registers=registers, words=words))
    memory, timeline = platform == "linux" and registers, platform == "linux" and registers and words
    for types in (declared.memory_import, declared.memory_export):
        assert (M.HOST_MEMORY_FD in types) is memory
    for among in (declared.semaphore_import, declared.semaphore_export, declared.wait_before_signal):
        assert (S.HOST_TIMELINE_FD in among) is timeline
    assert not declared.bridged
    assert Feature.MEMORY_SHARING not in declared.features


@pytest.mark.parametrize(("platform", "timeline"), [("linux", S.TIMELINE_SEMAPHORE_FD),
                                                   ("win32", S.TIMELINE_SEMAPHORE_WIN32)])
def test_timelines_need_the_attribute(platform: str, timeline: SemaphoreHandleType) -> None:
    assert timeline in capabilities_of(platform, MODERN).semaphore_import
    assert timeline not in capabilities_of(platform, MODERN._replace(timeline=False)).semaphore_import


def test_windows_declares_every_type_without_fd_or_nvsci() -> None:
    capabilities = capabilities_of("win32", MODERN)
    windows = (OsHandleKind.NT, OsHandleKind.KMT)
    assert capabilities.semaphore_import == {each for each in S if each.os_handle_kind in windows and not each.portable}
    assert capabilities.memory_import == {each for each in M if each.os_handle_kind in windows and not each.portable}
    assert not capabilities.wait_before_signal


# The types of the header of each CUDA version.
@pytest.mark.parametrize(("version", "semaphores", "memories"), [
    (10010, {1, 2, 3, 4}, {1, 2, 3, 4, 5}), (10020, set(range(1, 9)), set(range(1, 9))),
    (11020, set(range(1, 11)), set(range(1, 9))), (13000, set(range(1, 11)), set(range(1, 10))),
])
def test_types_follow_the_version_of_the_driver(version: int, semaphores: set[int], memories: set[int]) -> None:
    thor = MODERN._replace(integrated=True, compute_capability=(11, 0), driver_version=version,
                           timeline=version >= 11020)
    both = [capabilities_of(platform, thor) for platform in ("linux", "win32")]
    declared = set[S]().union(*(each.semaphore_import for each in both))
    assert {each.native["cuda"][1] for each in declared} == semaphores
    declared_memory = set[M]().union(*(each.memory_import for each in both))
    assert {each.native["cuda"][1] for each in declared_memory} == memories


# Unlike handle types, formats need their enumerators in the bindings, too; the bindings here have all.
PLAIN = {"uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32"}
FRACTIONS = {"unorm8", "unorm16", "snorm8", "snorm16"}


@pytest.mark.parametrize(("version", "blocks", "packed", "video"), [
    (10010, False, False, False), (11040, False, False, False), (11050, True, False, False),
    (12040, True, False, False), (12050, True, False, True), (12070, True, False, True), (12080, True, True, True),
    (13000, True, True, True),
])
def test_formats_and_flags_follow_the_version_of_the_driver(
    version: int, blocks: bool, packed: bool, video: bool
) -> None:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    formats = known_formats(driver, version)
    assert formats >= PLAIN
    assert (formats >= FRACTIONS, "bc7_unorm_srgb" in formats) == (blocks, blocks)
    assert blocks or formats == PLAIN
    assert ("unorm_10_10_10_2" in formats) is packed
    flags = capabilities_of("linux", MODERN._replace(driver_version=version)).image_flags
    assert flags - {"video"} == {"cubemap", "surface_load_store", "color_attachment", "texture_gather"}
    assert ("video" in flags) is video


def test_windows_device_without_display_driver_has_no_direct3d() -> None:
    capabilities = capabilities_of("win32", MODERN._replace(tcc=True))
    declared = {each.value for each in capabilities.semaphore_import}
    declared |= {each.value for each in capabilities.memory_import}
    assert declared
    assert not any(value.startswith("d3d") for value in declared)


@pytest.mark.parametrize(
    ("capability", "integrated", "nvsci", "dmabuf"),
    [((8, 7), True, True, False), ((8, 7), False, False, False), ((11, 0), True, True, True),
     ((10, 1), True, True, True), ((12, 1), True, False, False), ((9, 0), False, False, False)],
)
def test_nvsci_and_dmabuf_are_declared_only_on_tegra(
    capability: tuple[int, int], integrated: bool, nvsci: bool, dmabuf: bool
) -> None:
    declared = capabilities_of("linux", MODERN._replace(integrated=integrated, compute_capability=capability))
    assert (S.NVSCISYNC in declared.semaphore_import) is nvsci
    assert (M.NVSCIBUF in declared.memory_import) is nvsci
    assert (M.DMABUF_FD in declared.memory_import) is dmabuf


OLD = MODERN._replace(driver_version=10010, timeline=False)
PORTABLE = MODERN._replace(registers=True, words=True)
WINDOWS, TEGRA = "exist only on Windows", MODERN._replace(integrated=True, compute_capability=(8, 7))


@pytest.mark.parametrize(("platform", "attributes", "capability", "cause"), [
    ("linux", MODERN, "semaphore.import.d3d12_fence", WINDOWS),
    ("linux", MODERN, "memory.import.opaque_win32", WINDOWS),
    ("linux", MODERN, "semaphore.import.d3d11_keyed_mutex_kmt", WINDOWS),
    ("win32", MODERN, "semaphore.import.opaque_fd", "do not exist on Windows"),
    ("win32", MODERN, "memory.import.dmabuf_fd", "do not exist on Windows"),
    ("win32", MODERN, "semaphore.import.nvscisync", "do not exist on Windows"),
    ("win32", MODERN._replace(tcc=True), "semaphore.import.d3d12_fence", "TCC mode"),
    ("win32", MODERN._replace(tcc=True), "memory.import.d3d11_resource_kmt", "TCC mode"),
    ("win32", OLD, "semaphore.import.d3d11_fence", "the driver is of CUDA 10.1, and this came with CUDA 10.2"),
    ("win32", OLD, "semaphore.import.timeline_semaphore_win32", "TIMELINE_SEMAPHORE_INTEROP_SUPPORTED is 0"),
    ("linux", OLD, "semaphore.import.timeline_semaphore_fd", "TIMELINE_SEMAPHORE_INTEROP_SUPPORTED is 0"),
    ("linux", OLD, "semaphore.import.nvscisync", "came with CUDA 10.2"),
    ("linux", MODERN, "semaphore.import.sync_fd", "CUDA has no such type"),
    ("linux", MODERN, "semaphore.import.nvscisync", "not one of Tegra"),
    ("linux", MODERN, "memory.import.nvscibuf", "not one of Tegra"),
    ("linux", TEGRA, "memory.import.dmabuf_fd", "only on Tegra Thor"),
    ("linux", TEGRA._replace(compute_capability=(11, 0), dmabuf_type=False), "memory.import.dmabuf_fd", "xsem[cuda13]"),
    ("linux", TEGRA._replace(driver_version=12090), "memory.import.dmabuf_fd", "came with CUDA 13.0"),
    ("darwin", MODERN, "semaphore.import.opaque_fd", "only on Linux and Windows"),
    ("linux", MODERN, "semaphore.export.opaque_fd", "semaphore: create the semaphore on companion_exporter()"),
    ("linux", PORTABLE, "semaphore.export.opaque_fd", "semaphore: use create_timeline()"),
    ("linux", MODERN, "memory.import.host_memory_fd", "HOST_REGISTER_SUPPORTED"),
    ("linux", MODERN._replace(registers=True), "semaphore.export.host_timeline_fd", "CAN_USE_64_BIT_STREAM_MEM_OPS"),
    ("linux", OLD._replace(registers=True), "semaphore.import.host_timeline_fd", "came with CUDA 11.7"),
    ("linux", PORTABLE, "memory.export.host_memory_win32", "HOST_MEMORY_FD"),
    ("win32", PORTABLE, "semaphore.export.host_timeline_win32", "only on Linux"),
    ("win32", PORTABLE, "memory.import.host_memory_win32", "only on Linux"),
    ("linux", MODERN, "memory.export.opaque_fd", "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED"),
    ("linux", MODERN._replace(exports_fd=True), "memory.export.dmabuf_fd", "DMA_BUF_SUPPORTED"),
    ("linux", MODERN, "memory.export.d3d12_heap", "only on Linux, as OPAQUE_FD or DMABUF_FD"),
    ("linux", MODERN, "memory_sharing", "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED"),
    ("linux", OLD, "recording", "came with CUDA 11.4"),
    ("linux", OLD, "image_formats.bc7_unorm", "came with CUDA 11.5"),
    ("linux", OLD, "image_flags.video", "came with CUDA 12.5"),
    ("linux", MODERN, "image_formats.bc7_unorm", "cuda-bindings do not know it"),
    ("linux", MODERN, "image_formats.nv12", "MipmapDesc.plane"), ("linux", MODERN, "image_flags.sparse", "no image"),
])
def test_undeclared_capability_has_its_reason(
    platform: str, attributes: Attributes, capability: str, cause: str
) -> None:
    declared = capabilities_of(platform, attributes)
    assert cause in undeclared_causes(platform, attributes, declared)[capability][0]


@pytest.mark.parametrize("platform", ["linux", "win32", "darwin"])
@pytest.mark.parametrize("attributes", [MODERN, OLD, TEGRA, PORTABLE, MODERN._replace(tcc=True, exports_fd=True)],
                         ids=str)
def test_each_undeclared_type_has_a_reason_and_no_declared_one(platform: str, attributes: Attributes) -> None:
    declared = capabilities_of(platform, attributes)
    caused = {each for each in undeclared_causes(platform, attributes, declared) if ".import." in each}
    assert caused == ({f"semaphore.import.{each.value}" for each in S if each not in declared.semaphore_import}
                      | {f"memory.import.{each.value}" for each in M if each not in declared.memory_import})


def test_dmabuf_needs_bindings_that_know_the_type() -> None:
    thor = MODERN._replace(integrated=True, compute_capability=(11, 0), dmabuf_type=False)
    assert M.DMABUF_FD not in capabilities_of("linux", thor).memory_import


def test_other_platforms_import_nothing() -> None:
    capabilities = capabilities_of("darwin", MODERN)
    assert not capabilities.semaphore_import
    assert not capabilities.memory_import


def test_measured_capabilities() -> None:
    capabilities = capabilities_of("linux", MODERN)
    assert capabilities.max_pending == 1020
    assert capabilities.independent_lists == 8
    assert capabilities.max_value_difference == 2**64 - 1
    assert capabilities.resets_on_wait
    assert not capabilities.append_never_blocks
    assert not capabilities.release_never_blocks
    assert not capabilities.needs_handover
    assert {Feature.NATIVE_EVENTS, Feature.NATIVE_CONTEXT, Feature.MIPMAPPED_ARRAY,
            Feature.IMAGE_COPY} == capabilities.features
