"""Each handle type's kind, OS handle kind and vendor names, compared with the vendors' headers and documents."""

from __future__ import annotations

import dataclasses
import json
import pickle
from collections.abc import Mapping

import pytest

from xsem.types import MemoryHandleType, OsHandleKind, SemaphoreHandleType, SemaphoreKind

S = SemaphoreHandleType
M = MemoryHandleType

# The complete enumerations of the vendors' documents.
CUDA_SEMAPHORES = {  # cuImportExternalSemaphore, CUexternalSemaphoreHandleType
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD": 1,
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32": 2,
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT": 3,
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE": 4,
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE": 5,
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_NVSCISYNC": 6,
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX": 7,
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_KEYED_MUTEX_KMT": 8,
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD": 9,
    "CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32": 10,
}
CUDART_SEMAPHORES = {  # cudaImportExternalSemaphore
    "cudaExternalSemaphoreHandleTypeOpaqueFd": 1,
    "cudaExternalSemaphoreHandleTypeOpaqueWin32": 2,
    "cudaExternalSemaphoreHandleTypeOpaqueWin32Kmt": 3,
    "cudaExternalSemaphoreHandleTypeD3D12Fence": 4,
    "cudaExternalSemaphoreHandleTypeD3D11Fence": 5,
    "cudaExternalSemaphoreHandleTypeNvSciSync": 6,
    "cudaExternalSemaphoreHandleTypeKeyedMutex": 7,
    "cudaExternalSemaphoreHandleTypeKeyedMutexKmt": 8,
    "cudaExternalSemaphoreHandleTypeTimelineSemaphoreFd": 9,
    "cudaExternalSemaphoreHandleTypeTimelineSemaphoreWin32": 10,
}
LEVELZERO_SEMAPHORES = {  # ze_external_semaphore_ext_flags_t
    "ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_FD": 0x1,
    "ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_WIN32": 0x2,
    "ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_OPAQUE_WIN32_KMT": 0x4,
    "ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_D3D12_FENCE": 0x8,
    "ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_D3D11_FENCE": 0x10,
    "ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_KEYED_MUTEX": 0x20,
    "ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_KEYED_MUTEX_KMT": 0x40,
    "ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_VK_TIMELINE_SEMAPHORE_FD": 0x80,
    "ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_VK_TIMELINE_SEMAPHORE_WIN32": 0x100,
}
OPENCL_SEMAPHORES = {  # cl_ext.h, cl_external_semaphore_handle_type_khr
    "CL_SEMAPHORE_HANDLE_OPAQUE_FD_KHR": 0x2055,
    "CL_SEMAPHORE_HANDLE_OPAQUE_WIN32_KHR": 0x2056,
    "CL_SEMAPHORE_HANDLE_OPAQUE_WIN32_KMT_KHR": 0x2057,
    "CL_SEMAPHORE_HANDLE_SYNC_FD_KHR": 0x2058,
    "CL_SEMAPHORE_HANDLE_D3D12_FENCE_KHR": 0x2059,
}
OPENGL_SEMAPHORES = {  # EXT_external_objects_fd and _win32; NV_timeline_semaphore adds no type
    "GL_HANDLE_TYPE_OPAQUE_FD_EXT": 0x9586,
    "GL_HANDLE_TYPE_OPAQUE_WIN32_EXT": 0x9587,
    "GL_HANDLE_TYPE_OPAQUE_WIN32_KMT_EXT": 0x9588,
    "GL_HANDLE_TYPE_D3D12_FENCE_EXT": 0x9594,
}
VULKAN_SEMAPHORES = {  # VkExternalSemaphoreHandleTypeFlagBits; D3D11_FENCE is the same bit as D3D12_FENCE
    "VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT": 0x1,
    "VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_BIT": 0x2,
    "VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32_KMT_BIT": 0x4,
    "VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE_BIT": 0x8,
    "VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D11_FENCE_BIT": 0x8,
    "VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_SYNC_FD_BIT": 0x10,
}
CUDA_MEMORIES = {  # cuImportExternalMemory, CUexternalMemoryHandleType
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD": 1,
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32": 2,
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT": 3,
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP": 4,
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE": 5,
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE": 6,
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_RESOURCE_KMT": 7,
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_NVSCIBUF": 8,
    "CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD": 9,
}
CUDART_MEMORIES = {  # cudaImportExternalMemory, without dma-buf
    "cudaExternalMemoryHandleTypeOpaqueFd": 1,
    "cudaExternalMemoryHandleTypeOpaqueWin32": 2,
    "cudaExternalMemoryHandleTypeOpaqueWin32Kmt": 3,
    "cudaExternalMemoryHandleTypeD3D12Heap": 4,
    "cudaExternalMemoryHandleTypeD3D12Resource": 5,
    "cudaExternalMemoryHandleTypeD3D11Resource": 6,
    "cudaExternalMemoryHandleTypeD3D11ResourceKmt": 7,
    "cudaExternalMemoryHandleTypeNvSciBuf": 8,
}
LEVELZERO_MEMORIES = {  # ze_external_memory_type_flags_t
    "ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_FD": 0x1,
    "ZE_EXTERNAL_MEMORY_TYPE_FLAG_DMA_BUF": 0x2,
    "ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32": 0x4,
    "ZE_EXTERNAL_MEMORY_TYPE_FLAG_OPAQUE_WIN32_KMT": 0x8,
    "ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D11_TEXTURE": 0x10,
    "ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D11_TEXTURE_KMT": 0x20,
    "ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_HEAP": 0x40,
    "ZE_EXTERNAL_MEMORY_TYPE_FLAG_D3D12_RESOURCE": 0x80,
}
OPENCL_MEMORIES = {  # cl_ext.h, cl_external_memory_handle_type_khr
    "CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR": 0x2060,
    "CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_WIN32_KHR": 0x2061,
    "CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_WIN32_KMT_KHR": 0x2062,
    "CL_EXTERNAL_MEMORY_HANDLE_D3D11_TEXTURE_KHR": 0x2063,
    "CL_EXTERNAL_MEMORY_HANDLE_D3D11_TEXTURE_KMT_KHR": 0x2064,
    "CL_EXTERNAL_MEMORY_HANDLE_D3D12_HEAP_KHR": 0x2065,
    "CL_EXTERNAL_MEMORY_HANDLE_D3D12_RESOURCE_KHR": 0x2066,
    "CL_EXTERNAL_MEMORY_HANDLE_DMA_BUF_KHR": 0x2067,
}
OPENGL_MEMORIES = {  # EXT_external_objects_fd and _win32
    "GL_HANDLE_TYPE_OPAQUE_FD_EXT": 0x9586,
    "GL_HANDLE_TYPE_OPAQUE_WIN32_EXT": 0x9587,
    "GL_HANDLE_TYPE_OPAQUE_WIN32_KMT_EXT": 0x9588,
    "GL_HANDLE_TYPE_D3D12_TILEPOOL_EXT": 0x9589,
    "GL_HANDLE_TYPE_D3D12_RESOURCE_EXT": 0x958A,
    "GL_HANDLE_TYPE_D3D11_IMAGE_EXT": 0x958B,
    "GL_HANDLE_TYPE_D3D11_IMAGE_KMT_EXT": 0x958C,
}
VULKAN_MEMORIES = {  # VkExternalMemoryHandleTypeFlagBits
    "VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT": 0x1,
    "VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_BIT": 0x2,
    "VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32_KMT_BIT": 0x4,
    "VK_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_TEXTURE_BIT": 0x8,
    "VK_EXTERNAL_MEMORY_HANDLE_TYPE_D3D11_TEXTURE_KMT_BIT": 0x10,
    "VK_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP_BIT": 0x20,
    "VK_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE_BIT": 0x40,
    "VK_EXTERNAL_MEMORY_HANDLE_TYPE_DMA_BUF_BIT_EXT": 0x200,
}

# One row per type: kind, OS handle kind, device-bound, then the names in CUDA, the CUDA runtime, Level Zero, OpenCL,
# OpenGL and Vulkan, each without the common prefix of its enumeration.
SEMAPHORES = {
    S.OPAQUE_FD: ("binary", "fd", True, "OPAQUE_FD", "OpaqueFd", "OPAQUE_FD", "OPAQUE_FD_KHR", "OPAQUE_FD_EXT",
                  "OPAQUE_FD_BIT"),
    S.OPAQUE_WIN32: ("binary", "nt", True, "OPAQUE_WIN32", "OpaqueWin32", "OPAQUE_WIN32", "OPAQUE_WIN32_KHR",
                     "OPAQUE_WIN32_EXT", "OPAQUE_WIN32_BIT"),
    S.OPAQUE_WIN32_KMT: ("binary", "kmt", True, "OPAQUE_WIN32_KMT", "OpaqueWin32Kmt", "OPAQUE_WIN32_KMT",
                         "OPAQUE_WIN32_KMT_KHR", "OPAQUE_WIN32_KMT_EXT", "OPAQUE_WIN32_KMT_BIT"),
    S.D3D12_FENCE: ("timeline", "nt", False, "D3D12_FENCE", "D3D12Fence", "D3D12_FENCE", "D3D12_FENCE_KHR",
                    "D3D12_FENCE_EXT", "D3D12_FENCE_BIT"),
    S.D3D11_FENCE: ("timeline", "nt", False, "D3D11_FENCE", "D3D11Fence", "D3D11_FENCE", None, None, "D3D11_FENCE_BIT"),
    S.NVSCISYNC: ("nvscisync", "nvsci", False, "NVSCISYNC", "NvSciSync", None, None, None, None),
    S.D3D11_KEYED_MUTEX: ("keyed_mutex", "nt", False, "D3D11_KEYED_MUTEX", "KeyedMutex", "KEYED_MUTEX", None, None,
                          None),
    S.D3D11_KEYED_MUTEX_KMT: ("keyed_mutex", "kmt", False, "D3D11_KEYED_MUTEX_KMT", "KeyedMutexKmt", "KEYED_MUTEX_KMT",
                              None, None, None),
    S.TIMELINE_SEMAPHORE_FD: ("timeline", "fd", True, "TIMELINE_SEMAPHORE_FD", "TimelineSemaphoreFd",
                              "VK_TIMELINE_SEMAPHORE_FD", None, "OPAQUE_FD_EXT", "OPAQUE_FD_BIT"),
    S.TIMELINE_SEMAPHORE_WIN32: ("timeline", "nt", True, "TIMELINE_SEMAPHORE_WIN32", "TimelineSemaphoreWin32",
                                 "VK_TIMELINE_SEMAPHORE_WIN32", None, "OPAQUE_WIN32_EXT", "OPAQUE_WIN32_BIT"),
    S.SYNC_FD: ("sync_file", "fd", False, None, None, None, "SYNC_FD_KHR", None, "SYNC_FD_BIT"),
    S.HOST_TIMELINE_FD: ("timeline", "fd", False, None, None, None, None, None, None),
    S.HOST_TIMELINE_WIN32: ("timeline", "nt", False, None, None, None, None, None, None),
}
# OS handle kind, device-bound, dedicated, then the names as above.
MEMORIES = {
    M.OPAQUE_FD: ("fd", True, False, "OPAQUE_FD", "OpaqueFd", "OPAQUE_FD", "OPAQUE_FD_KHR", "OPAQUE_FD_EXT",
                  "OPAQUE_FD_BIT"),
    M.OPAQUE_WIN32: ("nt", True, False, "OPAQUE_WIN32", "OpaqueWin32", "OPAQUE_WIN32", "OPAQUE_WIN32_KHR",
                     "OPAQUE_WIN32_EXT", "OPAQUE_WIN32_BIT"),
    M.OPAQUE_WIN32_KMT: ("kmt", True, False, "OPAQUE_WIN32_KMT", "OpaqueWin32Kmt", "OPAQUE_WIN32_KMT",
                         "OPAQUE_WIN32_KMT_KHR", "OPAQUE_WIN32_KMT_EXT", "OPAQUE_WIN32_KMT_BIT"),
    M.D3D12_HEAP: ("nt", False, False, "D3D12_HEAP", "D3D12Heap", "D3D12_HEAP", "D3D12_HEAP_KHR", "D3D12_TILEPOOL_EXT",
                   "D3D12_HEAP_BIT"),
    M.D3D12_RESOURCE: ("nt", False, True, "D3D12_RESOURCE", "D3D12Resource", "D3D12_RESOURCE", "D3D12_RESOURCE_KHR",
                       "D3D12_RESOURCE_EXT", "D3D12_RESOURCE_BIT"),
    M.D3D11_RESOURCE: ("nt", False, True, "D3D11_RESOURCE", "D3D11Resource", "D3D11_TEXTURE", "D3D11_TEXTURE_KHR",
                       "D3D11_IMAGE_EXT", "D3D11_TEXTURE_BIT"),
    M.D3D11_RESOURCE_KMT: ("kmt", False, True, "D3D11_RESOURCE_KMT", "D3D11ResourceKmt", "D3D11_TEXTURE_KMT",
                           "D3D11_TEXTURE_KMT_KHR", "D3D11_IMAGE_KMT_EXT", "D3D11_TEXTURE_KMT_BIT"),
    M.NVSCIBUF: ("nvsci", False, False, "NVSCIBUF", "NvSciBuf", None, None, None, None),
    M.DMABUF_FD: ("fd", False, False, "DMABUF_FD", None, "DMA_BUF", "DMA_BUF_KHR", None, "DMA_BUF_BIT_EXT"),
    M.HOST_MEMORY_FD: ("fd", False, False, None, None, None, None, None, None),
    M.HOST_MEMORY_WIN32: ("nt", False, False, None, None, None, None, None, None),
}
VENDORS = ("cuda", "cudart", "levelzero", "opencl", "opengl", "vulkan")
SEMAPHORE_HEADERS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "cuda": ("CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_", CUDA_SEMAPHORES),
    "cudart": ("cudaExternalSemaphoreHandleType", CUDART_SEMAPHORES),
    "levelzero": ("ZE_EXTERNAL_SEMAPHORE_EXT_FLAG_", LEVELZERO_SEMAPHORES),
    "opencl": ("CL_SEMAPHORE_HANDLE_", OPENCL_SEMAPHORES),
    "opengl": ("GL_HANDLE_TYPE_", OPENGL_SEMAPHORES),
    "vulkan": ("VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_", VULKAN_SEMAPHORES),
}
MEMORY_HEADERS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "cuda": ("CU_EXTERNAL_MEMORY_HANDLE_TYPE_", CUDA_MEMORIES),
    "cudart": ("cudaExternalMemoryHandleType", CUDART_MEMORIES),
    "levelzero": ("ZE_EXTERNAL_MEMORY_TYPE_FLAG_", LEVELZERO_MEMORIES),
    "opencl": ("CL_EXTERNAL_MEMORY_HANDLE_", OPENCL_MEMORIES),
    "opengl": ("GL_HANDLE_TYPE_", OPENGL_MEMORIES),
    "vulkan": ("VK_EXTERNAL_MEMORY_HANDLE_TYPE_", VULKAN_MEMORIES),
}


def expected_native(
    names: tuple[str | None, ...], headers: Mapping[str, tuple[str, Mapping[str, int]]]
) -> dict[str, tuple[str, int]]:
    native = {}
    for vendor, name in zip(VENDORS, names, strict=True):
        if name is not None:
            prefix, numbers = headers[vendor]
            native[vendor] = (prefix + name, numbers[prefix + name])
    return native


def test_tables_name_every_member() -> None:
    assert set(SEMAPHORES) == set(S)
    assert len(S) == 13
    assert set(MEMORIES) == set(M)
    assert len(M) == 11


@pytest.mark.parametrize("member", S, ids=lambda member: member.name)
def test_semaphore_type_has_its_kind_handle_kind_and_names(member: SemaphoreHandleType) -> None:
    kind, os_handle_kind, device_bound, *names = SEMAPHORES[member]
    assert member.kind is SemaphoreKind(kind)
    assert member.os_handle_kind is OsHandleKind(os_handle_kind)
    assert member.device_bound is device_bound
    assert dict(member.native) == expected_native(tuple(names), SEMAPHORE_HEADERS)


@pytest.mark.parametrize("member", M, ids=lambda member: member.name)
def test_memory_type_has_its_handle_kind_dedication_and_names(member: MemoryHandleType) -> None:
    os_handle_kind, device_bound, dedicated, *names = MEMORIES[member]
    assert member.os_handle_kind is OsHandleKind(os_handle_kind)
    assert member.device_bound is device_bound
    assert member.dedicated is dedicated
    assert dict(member.native) == expected_native(tuple(names), MEMORY_HEADERS)


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_vendor_name_belongs_to_a_type(vendor: str) -> None:
    for members, headers in ((S, SEMAPHORE_HEADERS), (M, MEMORY_HEADERS)):
        found = {member.native[vendor][0] for member in members if vendor in member.native}
        assert found == set(headers[vendor][1])


def test_vendor_numbers_are_unique_except_for_known_pairs() -> None:
    # Timelines in opaque handles; both D3D fences.
    shared = {("vulkan", 0x1), ("vulkan", 0x2), ("vulkan", 0x8), ("opengl", 0x9586), ("opengl", 0x9587)}
    for members in (S, M):
        for vendor in VENDORS:
            numbers = [m.native[vendor][1] for m in members if vendor in m.native]
            doubles = {(vendor, number) for number in numbers if numbers.count(number) > 1}
            assert doubles == ({each for each in shared if each[0] == vendor} if members is S else set())


@pytest.mark.parametrize("member", [*S, *M], ids=str)
def test_native_names_cannot_be_changed(member: SemaphoreHandleType | MemoryHandleType) -> None:
    with pytest.raises(TypeError):
        member.native["cuda"] = ("mine", 0)  # type: ignore[index]


@pytest.mark.parametrize("member", [*S, *M], ids=str)
def test_value_is_the_lower_case_name_and_survives_pickle(
    member: SemaphoreHandleType | MemoryHandleType,
) -> None:
    assert member.value == member.name.lower()
    assert type(member)(member.value) is member
    assert json.loads(json.dumps(member)) == member.value
    assert pickle.loads(pickle.dumps(member)) is member


def test_memory_and_semaphore_types_of_one_name_differ() -> None:
    # Both are strings, so they compare equal. xsem checks the class, which differs.
    assert not isinstance(M.OPAQUE_FD, S)
    assert M.OPAQUE_FD is not S.OPAQUE_FD  # type: ignore[comparison-overlap]


def test_portable_types_are_those_of_no_vendor_and_of_no_device() -> None:
    for members in (S, M):
        assert [each for each in members if each.portable] == [each for each in members if not each.native]
        assert not any(each.device_bound for each in members if each.portable)


def test_exactly_the_three_d3d_resources_are_dedicated() -> None:
    assert {member for member in M if member.dedicated} == {
        M.D3D12_RESOURCE, M.D3D11_RESOURCE, M.D3D11_RESOURCE_KMT,
    }


def test_capabilities_are_frozen_and_promise_nothing_by_default() -> None:
    from xsem.data.image_formats import PLAIN_FLAGS, PLAIN_FORMATS
    from xsem.types import Capabilities

    promised = Capabilities()
    with pytest.raises(dataclasses.FrozenInstanceError):
        promised.needs_handover = True  # type: ignore[misc]
    for field in dataclasses.fields(Capabilities):
        default = getattr(promised, field.name)
        # Each default is the weakest promise: an empty set, False, one list, unknown, or the smallest limit.
        # Every device with images supports the plain formats and flags.
        assert default in (frozenset(), False, 1, None, 2**31 - 1, PLAIN_FORMATS, PLAIN_FLAGS)
