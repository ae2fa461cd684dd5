"""Why a CUDA device does not declare a handle type, a format, a flag or a feature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from xsem.types import Capabilities, Feature, MemoryHandleType, OsHandleKind, SemaphoreHandleType
from xsem_cuda.capabilities import SINCE, THOR, Attributes, version_text
from xsem_cuda.images import UNMAPPED, image_capabilities
from xsem_cuda.recording import OLDEST_DRIVER
from xsem_cuda.words import SINCE as WORDS_SINCE

__all__ = ["undeclared_causes"]

_HandleType = SemaphoreHandleType | MemoryHandleType

_OF_WINDOWS: Final = frozenset({OsHandleKind.NT, OsHandleKind.KMT})
_EXPORTED: Final = frozenset({MemoryHandleType.OPAQUE_FD, MemoryHandleType.DMABUF_FD})
_ELSEWHERE: Final = "create the semaphore on companion_exporter(), the Vulkan device of the same GPU, or in another API"
_NO_EXPORT: Final = "CUDA has no function that exports a semaphore: "
_PORTABLE: Final = "use create_timeline(), whose timeline is in host memory and on every device, or "
_NO_WORDS: Final = ("the driver says that streams of the device wait for no 64-bit word (the attribute "
                    "CAN_USE_64_BIT_STREAM_MEM_OPS is 0, or cuStreamBatchMemOp is missing)")
_NO_PAGES: Final = ("the driver says that it takes no memory of the host into use (the attribute "
                    "HOST_REGISTER_SUPPORTED is 0)")


def undeclared_causes(platform: str, attributes: Attributes, declared: Capabilities) -> Mapping[str, tuple[str, ...]]:
    """Return `DeviceDriver.undeclared_causes` of a device with these attributes, which declares these capabilities."""
    found = {f"semaphore.import.{type.value}": _import(platform, attributes, type)
             for type in SemaphoreHandleType if type not in declared.semaphore_import}
    found |= {f"memory.import.{type.value}": _import(platform, attributes, type)
              for type in MemoryHandleType if type not in declared.memory_import}
    timelines = SemaphoreHandleType.HOST_TIMELINE_FD in declared.semaphore_export
    found |= {f"semaphore.export.{type.value}": _portable(platform, attributes, type) if type.portable else
              _NO_EXPORT + _PORTABLE * timelines + _ELSEWHERE
              for type in SemaphoreHandleType if type not in declared.semaphore_export}
    found |= {f"memory.export.{type.value}": _export(platform, attributes, type)
              for type in MemoryHandleType if type not in declared.memory_export}
    known = declared.image_formats | declared.image_flags
    found |= {capability: _image(attributes, since) for capability, since in image_capabilities().items()
              if capability.partition(".")[2] not in known}
    found |= UNMAPPED
    if Feature.RECORDING not in declared.features:
        found[Feature.RECORDING.value] = _too_old(attributes, OLDEST_DRIVER)
    if Feature.MEMORY_SHARING not in declared.features:
        found[Feature.MEMORY_SHARING.value] = _export(platform, attributes, MemoryHandleType.OPAQUE_FD)
    return {capability: (cause,) for capability, cause in found.items()}


def _import(platform: str, attributes: Attributes, type: _HandleType) -> str:
    kind, since = type.os_handle_kind, SINCE.get(type, 0)
    if type.portable:
        return _portable(platform, attributes, type)
    if platform not in ("linux", "win32"):
        return "CUDA imports objects of other APIs only on Linux and Windows"
    if "cuda" not in type.native:
        return "CUDA has no such type: export an OPAQUE_FD or a TIMELINE_SEMAPHORE_FD"
    if kind in _OF_WINDOWS and platform != "win32":
        return "its handles exist only on Windows: on Linux, the exporter makes an OPAQUE_FD or a TIMELINE_SEMAPHORE_FD"
    if kind not in _OF_WINDOWS and platform == "win32":
        return ("its handles do not exist on Windows: there, the exporter makes an OPAQUE_WIN32 or a "
                "TIMELINE_SEMAPHORE_WIN32")
    if attributes.driver_version < since:
        return _too_old(attributes, since)
    if kind in _OF_WINDOWS and type.value.startswith("d3d"):
        return ("the device runs in TCC mode, without a display driver, and Direct3D has no such device: "
                "nvidia-smi -dm 0 selects the WDDM mode, where the GPU has it")
    if type is MemoryHandleType.DMABUF_FD:
        if attributes.integrated and attributes.compute_capability in THOR:
            return "these cuda-bindings do not know the type: pip install 'xsem[cuda13]'"
        return ("CUDA imports dma-bufs only on Tegra Thor: export an OPAQUE_FD, or import the dma-buf into Vulkan and "
                "copy there")
    if kind is OsHandleKind.NVSCI:
        return "NvSci objects exist only on Tegra, and this GPU is not one of Tegra"
    return ("the driver says that the device has no timeline semaphores (the attribute "
            "TIMELINE_SEMAPHORE_INTEROP_SUPPORTED is 0; drivers before CUDA 11.2 lack it): update the driver, or use "
            "binary semaphores")


def _portable(platform: str, attributes: Attributes, type: _HandleType) -> str:
    """Return why the device takes no timelines or no memory in host memory."""
    if platform != "linux":
        return "CUDA was not measured with timelines and memory of the host on this platform, only on Linux"
    if type.os_handle_kind is not OsHandleKind.FD:
        return f"its handles exist only on Windows: on Linux, the type is {type.name.removesuffix('WIN32')}FD"
    if not attributes.registers:
        return _NO_PAGES
    return _NO_WORDS if attributes.driver_version >= WORDS_SINCE else _too_old(attributes, WORDS_SINCE)


def _export(platform: str, attributes: Attributes, type: MemoryHandleType) -> str:
    if type.portable:
        return _portable(platform, attributes, type)
    if type not in _EXPORTED or platform != "linux":
        return "xsem exports memory of CUDA only on Linux, as OPAQUE_FD or DMABUF_FD"
    if not attributes.exports_fd:
        return ("the driver says that the device exports no allocation (the attribute "
                "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED or HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED is 0; drivers "
                "before CUDA 10.2 lack them): create the memory in Vulkan, or update the driver")
    return ("the driver made no dma-buf of a small allocation when the device was opened, or says that it makes none "
            "(the attribute DMA_BUF_SUPPORTED): export an OPAQUE_FD")


def _image(attributes: Attributes, since: int) -> str:
    if attributes.driver_version < since:
        return _too_old(attributes, since)
    return "these cuda-bindings do not know it: pip install 'xsem[cuda13]'"


def _too_old(attributes: Attributes, since: int) -> str:
    now, then = version_text(attributes.driver_version), version_text(since)
    return f"the driver is of CUDA {now}, and this came with CUDA {then}: update the driver"
