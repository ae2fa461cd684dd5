"""Which handle types two devices have in common, and why the others were not chosen."""

from __future__ import annotations

import pickle
import sys
import uuid
from dataclasses import replace

import pytest

import xsem
from xsem.types import Capabilities, DeviceInfo, MemoryHandleType, SemaphoreHandleType, SemaphoreKind

S, M = SemaphoreHandleType, MemoryHandleType
GPU, OTHER_GPU = uuid.UUID(int=1), uuid.UUID(int=2)
WINDOWS = sys.platform == "win32"
TIMELINE = S.TIMELINE_SEMAPHORE_WIN32 if WINDOWS else S.TIMELINE_SEMAPHORE_FD
BINARY, PIXELS = (S.OPAQUE_WIN32, M.OPAQUE_WIN32) if WINDOWS else (S.OPAQUE_FD, M.OPAQUE_FD)
PORTABLE, HOST_MEMORY = ((S.HOST_TIMELINE_WIN32, M.HOST_MEMORY_WIN32) if WINDOWS
                         else (S.HOST_TIMELINE_FD, M.HOST_MEMORY_FD))
SEMAPHORES, MEMORIES = frozenset({TIMELINE, BINARY, PORTABLE}), frozenset({PIXELS, HOST_MEMORY})
ALL = Capabilities(semaphore_import=SEMAPHORES, semaphore_export=SEMAPHORES, memory_import=MEMORIES,
                   memory_export=MEMORIES)


def device(
    name: str, gpu: uuid.UUID | None = GPU, driver_uuid: uuid.UUID | None = None, capabilities: Capabilities = ALL
) -> tuple[DeviceInfo, Capabilities]:
    info = DeviceInfo(id=f"{name}:0", backend=name, index=0, name=name, uuid=gpu, driver_uuid=driver_uuid)
    return info, capabilities


def test_types_of_the_driver_come_first_on_one_device() -> None:
    found = xsem.negotiate(device("acme"), device("bolt"))
    assert (found.semaphore, found.memory) == (TIMELINE, PIXELS)
    assert found.why_not[f"semaphore.{PORTABLE.value}"] == f"it is in host memory, so {TIMELINE.name} comes first"
    assert found.why_not[f"memory.{HOST_MEMORY.value}"] == f"it is in host memory, so {PIXELS.name} comes first"


def test_portable_types_are_those_of_two_devices() -> None:
    found = xsem.negotiate(device("acme"), device("bolt", OTHER_GPU))
    assert (found.semaphore, found.memory) == (PORTABLE, HOST_MEMORY)
    assert found.why_not[f"semaphore.{TIMELINE.value}"] == (
        f"it is valid on one device, and bolt:0 is another one: {OTHER_GPU}, not {GPU} as acme:0")
    found = xsem.negotiate(device("acme"), device("bolt", None))
    assert found.why_not[f"memory.{PIXELS.value}"] == (
        f"it is valid on one device, and bolt:0 is another one: without a UUID, not {GPU} as acme:0")


def test_another_driver_refuses_what_is_bound_to_the_device() -> None:
    found = xsem.negotiate(device("acme", driver_uuid=GPU), device("bolt", driver_uuid=OTHER_GPU))
    assert (found.semaphore, found.memory) == (PORTABLE, HOST_MEMORY)
    assert found.why_not[f"memory.{PIXELS.value}"] == (
        f"it is valid with one driver, and bolt:0 has another one: {OTHER_GPU}, not {GPU} as acme:0")
    # A driver without a UUID is not compared, as in an import.
    assert xsem.negotiate(device("acme", driver_uuid=GPU), device("bolt")).memory is PIXELS


def test_exporter_without_a_uuid_is_accepted_last() -> None:
    # An import does not refuse such a descriptor, and the driver may.
    found = xsem.negotiate(device("acme", None), device("bolt"))
    assert (found.semaphore, found.memory) == (PORTABLE, HOST_MEMORY)
    assert found.why_not[f"semaphore.{TIMELINE.value}"] == (
        f"the two drivers decide whether its import works, so {PORTABLE.name} comes first")
    assert xsem.negotiate(device("acme", None), device("bolt"), "binary").semaphore is BINARY


@pytest.mark.skipif(WINDOWS, reason="dma-bufs are Linux's")
def test_dma_buf_from_another_device_comes_last() -> None:
    both = replace(ALL, memory_import=MEMORIES | {M.DMABUF_FD}, memory_export=MEMORIES | {M.DMABUF_FD})
    assert xsem.negotiate(device("acme", capabilities=both), device("bolt", OTHER_GPU, capabilities=both)
                          ).memory is HOST_MEMORY
    without = replace(both, memory_export=frozenset({M.DMABUF_FD}))
    for importer in (device("bolt", OTHER_GPU, capabilities=both), device("bolt", capabilities=both)):
        assert xsem.negotiate(device("acme", capabilities=without), importer).memory is M.DMABUF_FD


def test_a_type_that_one_side_lacks_has_a_reason() -> None:
    no_export = device("acme", capabilities=replace(ALL, semaphore_export=SEMAPHORES - {TIMELINE}))
    no_import = device("bolt", capabilities=replace(ALL, memory_import=MEMORIES - {PIXELS}))
    found = xsem.negotiate(no_export, no_import)
    assert (found.semaphore, found.memory) == (PORTABLE, HOST_MEMORY)
    assert found.why_not[f"semaphore.{TIMELINE.value}"] == "acme:0 does not export it"
    assert found.why_not[f"memory.{PIXELS.value}"] == "bolt:0 does not import it"
    other = M.OPAQUE_FD if WINDOWS else M.OPAQUE_WIN32
    assert found.why_not[f"memory.{other.value}"] == (
        "Windows has no file descriptors of such objects" if WINDOWS else "it exists only on Windows")


def test_every_other_type_has_a_reason() -> None:
    found = xsem.negotiate(device("acme"), device("bolt"))
    assert set(found.why_not) | {f"semaphore.{found.semaphore.value}", f"memory.{found.memory.value}"} == (
        {f"semaphore.{each.value}" for each in S if each.kind is SemaphoreKind.TIMELINE}
        | {f"memory.{each.value}" for each in M})
    with pytest.raises(TypeError):
        found.why_not["memory.opaque_fd"] = "mine"  # type: ignore[index]


def test_no_common_type_is_an_error_with_the_reasons() -> None:
    with pytest.raises(xsem.UnsupportedError) as caught:
        xsem.negotiate(device("acme"), device("bolt", OTHER_GPU), SemaphoreKind.BINARY)
    assert caught.value.reason == "no_common_type"
    assert caught.value.capability == "negotiate"
    causes = caught.value.likely_causes   # the types of the other operating system are left out
    assert causes[0].startswith(f"{BINARY.name}: it is valid on one device")
    assert all("WIN32" in each or "MUTEX" in each for each in causes) if WINDOWS else len(causes) == 1
    with pytest.raises(xsem.UnsupportedError, match="acme:0 exports no memory that bolt:0 imports") as caught:
        xsem.negotiate(device("acme"), device("bolt", capabilities=replace(ALL, memory_import=frozenset())))
    assert f"{HOST_MEMORY.name}: bolt:0 does not import it" in caught.value.likely_causes


@pytest.mark.parametrize(("arguments", "reason"), [
    (("host", device("bolt")), "not_a_device"), ((device("acme"), None), "not_a_device"),
    ((device("acme"), device("bolt")[:1]), "not_a_device"), ((device("acme"), device("bolt")[::-1]), "not_a_device"),
    ((device("acme"), device("bolt"), "semaphore"), "bad_kind"), ((device("acme"), device("bolt"), None), "bad_kind"),
])
def test_bad_arguments_are_named(arguments: tuple[object, ...], reason: str) -> None:
    with pytest.raises(xsem.BadArgumentError) as caught:
        xsem.negotiate(*arguments)  # type: ignore[arg-type]
    assert caught.value.reason == reason


@pytest.mark.parametrize("kind", ["timeline", "binary"])
def test_open_devices_share_the_types_and_another_process_sends_what_is_needed(kind: str) -> None:
    with xsem.open_device("host") as exporter, xsem.open_device("host") as importer:
        found = xsem.negotiate(exporter, importer, kind)
        far = pickle.loads(pickle.dumps((exporter.info, exporter.capabilities)))
        assert xsem.negotiate(far, importer, kind) == found
        with (exporter.create_semaphore(found.semaphore).export(for_device=importer) as semaphore,
              exporter.create_memory(found.memory, 4096).export(for_device=importer) as memory):
            assert importer.import_semaphore(semaphore).kind.value == kind
            importer.import_memory(memory)
