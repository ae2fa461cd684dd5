"""The properties of a device that only real imports and exports show, determined once in a process."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from xsem.types import MemoryHandleType, SemaphoreHandleType
from xsem_levelzero import ze
from xsem_levelzero.capabilities import WIN32_SEMAPHORES
from xsem_levelzero.core import context_of_probe
from xsem_levelzero.exports import Exports, probe_exports
from xsem_levelzero.extension import Extension, find_extensions
from xsem_levelzero.gpus import Gpu
from xsem_levelzero.intel.releases import INTEL, flaw_of, has_host_functions, is_late
from xsem_levelzero.loader import Loader
from xsem_levelzero.probe import Behaviour, probe
from xsem_levelzero.results import UNINITIALIZED, UNSUPPORTED_FEATURE

__all__ = ["Known", "find_out", "probed_exports"]

_MISSING: Final = "the four functions of the extension are neither in the loader nor in the driver"


class Known(NamedTuple):
    """The properties of a device, determined once in a process."""

    extension: Extension
    listed: bool
    host_memory: bool   # the driver takes pages of the host
    behaviour: Behaviour
    reasons: dict[SemaphoreHandleType | None, str]
    semaphores: frozenset[SemaphoreHandleType]
    late: bool             # an import supports one wait, and a signal may come after its event
    host_functions: bool   # of Intel's driver: neither


def find_out(loader: Loader, gpu: Gpu, platform: str) -> Known:
    """Find the functions, and try the semaphores of the device. A probe without a result raises: see `probe`."""
    extensions = find_extensions(loader, gpu.driver)
    extension = next(extensions)
    names = {each.name for each in loader.structs(ze.DriverExtension, "zeDriverGetExtensionProperties", gpu.driver)}
    listed = ze.EXTENSION.encode() in names
    reasons: dict[SemaphoreHandleType | None, str] = {}
    behaviour = Behaviour()
    semaphores: frozenset[SemaphoreHandleType] = frozenset()
    flaw = flaw_of(gpu.build) if platform == "linux" else None
    if flaw is not None:
        reasons[None] = flaw
    if not extension.found:
        reasons.setdefault(None, _MISSING)
    elif platform == "win32":
        # `probe` knows the objects of Linux only, so the list of extensions decides.
        semaphores = WIN32_SEMAPHORES if listed else frozenset()
    elif platform == "linux":
        behaviour = _probed(loader, gpu, extension)
        for other in extensions if _without_functions(behaviour) else ():
            found = _probed(loader, gpu, other)
            if found.types:
                extension, behaviour = other, found
                break
        semaphores = frozenset() if flaw else behaviour.types
        reasons.update((type, why) for type, why in behaviour.refusals.items())
    usable, seen = platform == "linux" and bool(semaphores), behaviour.seen
    if seen.one_wait is None:   # nothing was tried, so the number of the build decides
        late = usable and is_late(gpu.build, gpu.properties.vendorId, resets=behaviour.resets)
        host_functions = usable and has_host_functions(gpu.build)
    else:
        late = usable and bool(seen.one_wait or seen.late)
        host_functions = usable and not late and gpu.properties.vendorId == INTEL
    return Known(
        extension, listed, ze.SYSTEM_MEMORY.encode() in names, behaviour, reasons, semaphores, late, host_functions)


def _probed(loader: Loader, gpu: Gpu, extension: Extension) -> Behaviour:
    """Probe the functions of one source in a context of their own."""
    with context_of_probe(loader, extension, gpu.driver, gpu.device) as core:
        return probe(core, gpu.build)


def probed_exports(
    loader: Loader, gpu: Gpu, extension: Extension, types: Collection[MemoryHandleType]
) -> Exports:
    """Probe the exports of memory in a context of their own."""
    if not types:
        return Exports()
    with context_of_probe(loader, extension, gpu.driver, gpu.device) as core:
        return probe_exports(core, types)


def _without_functions(behaviour: Behaviour) -> bool:
    """Whether the answers are those of a loader whose driver did not give it the functions."""
    return not behaviour.types and bool(behaviour.codes) and behaviour.codes <= {UNSUPPORTED_FEATURE, UNINITIALIZED}
