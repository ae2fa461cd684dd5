"""Test devices: declarations, refusals, the owner of an fd after an import, missing parts. Needs no driver."""

from __future__ import annotations

import ctypes
import importlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.cuda_recorder import Recorder

from xsem.errors import (
    BackendUnavailableError,
    BadArgumentError,
    BadHandleError,
    DriverError,
    UnsupportedError,
    XsemError,
)
from xsem.spi import ImageRegion, ImportFailure
from xsem.types import (
    MemoryDesc,
    MipmapDesc,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)
from xsem_cuda import loader as _load
from xsem_cuda import starting
from xsem_cuda.backend import CudaBackend
from xsem_cuda.capabilities import Attributes, capabilities_of
from xsem_cuda.device import CudaDevice

cuda: Any = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
OURS = 0xC0
UUID = uuid.UUID(int=0x1234)
EXCHANGE = "cuThreadExchangeStreamCaptureMode"
DESTROYS = {"cuMipmappedArrayDestroy", "cuMemFree", "cuDestroyExternalMemory", "cuDestroyExternalSemaphore",
            "cuMemFreeHost"}


@pytest.fixture
def driver() -> Recorder:
    recorder = Recorder(cuda)
    recorder.answers["cuImportExternalSemaphore"] = lambda _desc: (cuda.CUexternalSemaphore(0x71),)
    recorder.answers["cuImportExternalMemory"] = lambda _desc: (cuda.CUexternalMemory(0x72),)
    recorder.answers["cuExternalMemoryGetMappedBuffer"] = lambda *_: (cuda.CUdeviceptr(0x7300),)
    recorder.answers["cuExternalMemoryGetMappedMipmappedArray"] = lambda *_: (cuda.CUmipmappedArray(0x74),)
    recorder.answers["cuMipmappedArrayGetLevel"] = lambda *_: (cuda.CUarray(0x75),)
    recorder.answers["cuMemHostAlloc"] = lambda *_: (0x7600,)
    recorder.answers["cuMemGetInfo"] = lambda: (1, 2)
    return recorder


class Closing:
    """The release of a context: how often it was called, and the driver's calls before it."""

    def __init__(self) -> None:
        self.times = 0
        self.seen: list[str] = []
        self.begins: Callable[[], list[str]] = list

    def __call__(self) -> None:
        self.times += 1
        self.seen = self.begins()


def open_on(driver: Recorder, platform: str = "linux", closing: Closing | None = None) -> CudaDevice:
    attributes = Attributes(timeline=True, integrated=True, compute_capability=(11, 0), dmabuf_type=True)
    return CudaDevice(driver, cuda.CUdevice(0), 3, cuda.CUcontext(OURS), capabilities_of(platform, attributes),
                      closing or Closing())


@pytest.fixture
def fd() -> Iterator[OwnedHandle]:
    with OwnedHandle(os.eventfd(0)) as handle:
        yield handle


def semaphore_desc(fd: OwnedHandle) -> SemaphoreDesc:
    return SemaphoreDesc.timeline_fd(fd.fileno(), device_uuid=None)


def memory_desc(fd: OwnedHandle) -> MemoryDesc:
    return MemoryDesc.opaque_fd(fd.fileno(), allocation_size=4096, device_uuid=None)


# ---- handles
def test_driver_owns_the_fd_when_the_import_succeeded(driver: Recorder, fd: OwnedHandle) -> None:
    device = open_on(driver)
    assert device.import_semaphore(semaphore_desc(fd), fd).handle == "taken"
    assert device.import_memory(memory_desc(fd), fd).handle == "taken"
    assert not fd.closed   # the facade detaches it


@pytest.mark.parametrize("code", [304, 400, 801, 999])
@pytest.mark.parametrize("what", ["semaphore", "memory"])
def test_fd_is_left_or_asked_for_when_the_import_failed(
    driver: Recorder, fd: OwnedHandle, what: str, code: int
) -> None:
    driver.codes[f"cuImportExternal{what.capitalize()}"] = code
    device = open_on(driver)
    import_it: Callable[[], object] = {
        "semaphore": lambda: device.import_semaphore(semaphore_desc(fd), fd),
        "memory": lambda: device.import_memory(memory_desc(fd), fd),
    }[what]
    with pytest.raises(ImportFailure) as caught:
        import_it()
    # A refused import of memory closes some descriptors and leaves others open, as measured, so xsem asks the kernel.
    assert caught.value.handle == ("left" if what == "semaphore" else "unknown")
    assert isinstance(caught.value.error, XsemError)
    assert caught.value.error.code == code
    assert not fd.closed


def test_handle_is_unknown_for_an_unknown_code(driver: Recorder, fd: OwnedHandle) -> None:
    def unknown(_desc: object) -> tuple[Any, ...]:
        raise ValueError("4321 is not a valid CUresult")

    driver.answers["cuImportExternalSemaphore"] = unknown
    with pytest.raises(ImportFailure) as caught:
        open_on(driver).import_semaphore(semaphore_desc(fd), fd)
    assert caught.value.handle == "unknown"


def test_fd_is_left_when_the_driver_has_no_such_function(driver: Recorder, fd: OwnedHandle) -> None:
    def missing(_desc: object) -> tuple[Any, ...]:
        raise RuntimeError('Function "cuImportExternalSemaphore" not found')

    driver.answers["cuImportExternalSemaphore"] = missing
    with pytest.raises(ImportFailure) as caught:
        open_on(driver).import_semaphore(semaphore_desc(fd), fd)
    assert caught.value.handle == "left"
    assert isinstance(caught.value.error, UnsupportedError)


def test_bad_fd_is_told_apart_from_a_broken_context(driver: Recorder, fd: OwnedHandle) -> None:
    driver.codes["cuImportExternalSemaphore"] = 999
    with pytest.raises(ImportFailure) as healthy:
        open_on(driver).import_semaphore(semaphore_desc(fd), fd)
    driver.codes["cuMemGetInfo"] = 999
    with pytest.raises(ImportFailure) as broken:
        open_on(driver).import_semaphore(semaphore_desc(fd), fd)
    assert isinstance(healthy.value.error, BadHandleError)
    assert healthy.value.error.likely_causes
    assert isinstance(broken.value.error, DriverError)
    assert broken.value.error.from_earlier_work


def test_nt_handle_stays_the_callers(driver: Recorder, fd: OwnedHandle) -> None:
    # A Windows handle is a number for the driver. Here an fd stands for it.
    device = open_on(driver, "win32")
    assert device.import_semaphore(SemaphoreDesc.d3d12_fence(fd.fileno()), fd).handle == "left"
    assert device.import_memory(MemoryDesc.d3d12_heap(fd.fileno(), allocation_size=1), fd).handle == "left"
    assert not fd.closed


# ---- releases
def test_everything_is_destroyed_by_its_own_function(driver: Recorder) -> None:
    device = open_on(driver)
    semaphore = device.import_semaphore(SemaphoreDesc.nvscisync(0x99), None).token
    memory = device.import_memory(MemoryDesc.nvscibuf(0x98, allocation_size=4096), None).token
    buffer, address = device.map_buffer(memory, 0, 64)
    image = device.map_mipmapped_array(memory, MipmapDesc(extent=(8, 8, 0), format="uint8", channels=4))
    host, host_address = device.host_buffer(64)
    assert (address, host_address) == (0x7300, 0x7600)
    level = device.mipmap_level(image, 0)
    assert [device.native_handle(each) for each in (None, semaphore, memory, buffer, image, level, host)] == [
        OURS, 0x71, 0x72, 0x7300, 0x74, 0x75, 0x7600]
    before = len(driver.calls)
    device.release_array(image)
    device.unmap_buffer(buffer)
    device.release_memory(memory)
    device.release_semaphore(semaphore)
    device.release_host_buffer(host)
    assert [(name, int(args[0])) for _, name, args in driver.calls[before:] if name in DESTROYS] == [
        ("cuMipmappedArrayDestroy", 0x74), ("cuMemFree", 0x7300), ("cuDestroyExternalMemory", 0x72),
        ("cuDestroyExternalSemaphore", 0x71), ("cuMemFreeHost", 0x7600)]


# ---- the driver calls of each method
APPENDS = {"cuSignalExternalSemaphoresAsync", "cuWaitExternalSemaphoresAsync", "cuEventRecord", "cuStreamWaitEvent",
           "cuMemcpyAsync", "cuMemcpy3DAsync", "cuMemsetD8Async", "cuStreamIsCapturing"}


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_only_appends_run_in_the_mode_of_the_thread(driver: Recorder, fd: OwnedHandle, platform: str) -> None:
    driver.answers["cuStreamGetCtx"] = lambda _stream: (cuda.CUcontext(OURS),)
    device = open_on(driver, platform)
    semaphore = device.import_semaphore(SemaphoreDesc(type=min(device.capabilities.semaphore_import), handle=5), None)
    memory = device.import_memory(MemoryDesc.nvscibuf(0x98, allocation_size=1 << 20), None)
    buffer, _ = device.map_buffer(memory.token, 0, 4096)
    staging, _ = device.host_buffer(4096)
    image = device.map_mipmapped_array(memory.token, MipmapDesc(extent=(8, 8, 0), format="uint8", channels=4))
    level, whole = device.mipmap_level(image, 0), ImageRegion((0, 0, 0), (8, 8, 1), 0, 1)
    device.nvscisync_attributes(0x1000, True, True)
    own, borrowed = device.create_queue(), device.borrow_queue(0x6000, True)
    fences: list[Any] = [own.append_signal([semaphore.token], [SignalParams(value=1)], (), (), True)]
    fences.append(borrowed.append_wait([semaphore.token], [WaitParams(value=1)], fences, (), True))
    fences.append(own.append_copy(staging, 0, buffer, 0, 64, (), True))
    fences.append(own.append_region_copy(level, whole, staging, 0, 32, 256, True, (), True))
    fences.append(own.append_fill(buffer, 0, b"\x01", 64, (), True))
    assert device.wait_fence(fences[-1], 0)
    answer = cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    driver.answers["cuStreamIsCapturing"] = lambda _stream: (answer,)
    assert borrowed.is_capturing()
    fences.append(borrowed.append_barrier((), True))
    for fence in fences:
        device.release_fence(fence)
    for queue in (own, borrowed):
        queue.close()
    device.release_array(image)
    device.unmap_buffer(buffer)
    device.release_memory(memory.token)
    device.release_semaphore(semaphore.token)
    device.release_host_buffer(staging)
    device.close()
    relaxed = False
    outside: set[str] = set()
    inside: set[str] = set()
    for _, name, args in driver.calls:
        if name == EXCHANGE:
            relaxed = args[0] == cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        elif not name.startswith("cuCtx") and name != "cuGetProcAddress":
            (inside if relaxed else outside).add(name)
    assert outside == APPENDS
    assert inside == DESTROYS | {
        "cuImportExternalSemaphore", "cuImportExternalMemory", "cuExternalMemoryGetMappedBuffer", "cuMemHostAlloc",
        "cuExternalMemoryGetMappedMipmappedArray", "cuMipmappedArrayGetLevel", "cuDeviceGetNvSciSyncAttributes",
        "cuStreamGetCtx", "cuStreamCreate", "cuStreamDestroy", "cuEventCreate", "cuEventQuery", "cuEventDestroy"}
    assert not relaxed


@pytest.mark.parametrize("read", [True, False])
def test_level_is_copied_on_the_list_without_waiting(driver: Recorder, read: bool) -> None:
    device = open_on(driver)
    memory = device.import_memory(MemoryDesc.nvscibuf(0x98, allocation_size=1 << 20), None).token
    image = device.map_mipmapped_array(memory, MipmapDesc(extent=(8, 4, 0), format="uint8", channels=4, layers=2))
    level, whole = device.mipmap_level(image, 0), ImageRegion((0, 0, 0), (8, 4, 1), 0, 2)
    staging, address = device.host_buffer(4096)
    commands = device.create_queue()
    seen: list[Any] = []

    def note(copy: Any, _stream: object) -> tuple[Any, ...]:
        seen.append((int(copy.srcMemoryType), int(copy.dstMemoryType), copy.WidthInBytes, copy.Height, copy.Depth,
                     copy.dstPitch if read else copy.srcPitch, int(copy.dstDevice if read else copy.srcDevice)))
        return ()

    driver.answers["cuMemcpy3DAsync"] = note
    fence = commands.append_region_copy(level, whole, staging, 256, 32, 128, read, (), True)
    array, unified = 3, 4
    assert seen == [((array, unified) if read else (unified, array)) + (32, 4, 2, 32, address + 256)]
    assert "cuStreamSynchronize" not in driver.names
    assert fence is not None
    device.release_fence(fence)
    assert commands.append_region_copy(level, whole, staging, 256, 32, 128, read, (), False) is None


def test_close_gives_the_context_back_after_the_events(driver: Recorder) -> None:
    closing = Closing()
    device = open_on(driver, closing=closing)
    commands = device.create_queue()
    fence = commands.append_barrier((), True)
    assert fence is not None
    assert device.query_fence(fence)
    device.release_fence(fence)
    commands.close()
    before = len(driver.calls)
    closing.begins = lambda: driver.names[before:]
    device.close()
    assert closing.times == 1
    assert closing.seen == [EXCHANGE, "cuEventDestroy"]
    assert driver.names[before:] == [EXCHANGE, "cuEventDestroy", EXCHANGE]


def test_arrays_are_of_this_device(driver: Recorder) -> None:
    assert open_on(driver).dlpack_device() == (2, 3)


def test_unknown_token_has_no_native_handle(driver: Recorder) -> None:
    with pytest.raises(UnsupportedError):
        open_on(driver).native_handle(object())


# ---- devices
@pytest.fixture
def two_gpus(driver: Recorder, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    attribute = cuda.CUdevice_attribute
    values = {attribute.CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED: 1,
              attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: 9}

    class UuidOf:
        def __init__(self, device: Any) -> None:
            self.bytes = uuid.UUID(int=UUID.int + int(device)).bytes

    driver.answers["cuDeviceGetCount"] = lambda: (2,)
    driver.answers["cuDeviceGet"] = lambda index: (cuda.CUdevice(index),)
    driver.answers["cuDeviceGetName"] = lambda _size, device: (b"GPU %d\0\0" % int(device),)
    driver.answers["cuDeviceGetUuid"] = driver.answers["cuDeviceGetUuid_v2"] = lambda device: (UuidOf(device),)
    driver.answers["cuDriverGetVersion"] = lambda: (13010,)
    driver.answers["cuDeviceGetAttribute"] = lambda which, _device: (values.get(which, 0),)
    driver.answers["cuDevicePrimaryCtxRetain"] = lambda device: (cuda.CUcontext(OURS + int(device)),)
    driver.answers["cuCtxGetDevice"] = lambda: (cuda.CUdevice(1),)
    monkeypatch.setattr(_load, "bindings", lambda: driver)
    return driver


def test_devices_have_their_uuids_and_names(two_gpus: Recorder) -> None:
    infos = CudaBackend("linux").devices()
    assert [(info.id, info.index, info.name, info.uuid, info.luid, info.driver_version) for info in infos] == [
        ("cuda:0", 0, "GPU 0", UUID, None, "13.1"),
        ("cuda:1", 1, "GPU 1", uuid.UUID(int=UUID.int + 1), None, "13.1")]


@pytest.fixture
def luid_of(two_gpus: Recorder) -> Callable[[Callable[[int], tuple[int, bytes]]], None]:
    """Have cuDeviceGetLuid answer with a code and 8 bytes; the node mask is 2 ** device."""
    kept: list[Any] = []

    def answer(asked: Callable[[int], tuple[int, bytes]]) -> None:
        def function(luid: int, mask: int, device: int) -> int:
            code, told = asked(device)
            if not code:
                ctypes.memmove(luid, told, len(told))
                ctypes.c_uint.from_address(mask).value = 1 << device
            return code

        kept.append(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(function))
        address = ctypes.cast(kept[-1], ctypes.c_void_p).value
        two_gpus.answers["cuGetProcAddress"] = lambda *_: (address, 1)

    return answer


def test_luid_is_any_8_bytes(luid_of: Callable[..., None]) -> None:
    luids = [b"\xf4\x03\x01\0\0\0\0\0", b"\0\x01\0\xff\xff\xff\xff\xff"]
    luid_of(lambda device: (0, luids[device]))
    assert [info.luid for info in CudaBackend("win32").devices()] == luids
    assert [CudaBackend("win32").details(index)["luid_node_mask"] for index in (0, 1)] == ["0x1", "0x2"]
    assert [info.luid for info in CudaBackend("linux").devices()] == [None, None]
    assert "luid_node_mask" not in CudaBackend("linux").details(0)


@pytest.mark.parametrize("answer", [(801, b""), (0, bytes(8))])
def test_device_without_a_luid_has_none(luid_of: Callable[..., None], answer: tuple[int, bytes]) -> None:
    luid_of(lambda _device: answer)
    assert [info.luid for info in CudaBackend("win32").devices()] == [None, None]
    assert "luid_node_mask" not in CudaBackend("win32").details(0)


def test_driver_that_tells_no_addresses_tells_no_luid(two_gpus: Recorder) -> None:
    def missing(*_: object) -> tuple[Any, ...]:
        raise RuntimeError("cuGetProcAddress is not found")

    two_gpus.answers["cuGetProcAddress"] = missing
    assert [info.luid for info in CudaBackend("win32").devices()] == [None, None]


def test_device_whose_driver_knows_no_uuid_has_none(two_gpus: Recorder) -> None:
    def missing(_device: object) -> tuple[Any, ...]:
        raise RuntimeError('Function "cuDeviceGetUuid" not found')

    two_gpus.answers["cuDeviceGetUuid"] = two_gpus.answers["cuDeviceGetUuid_v2"] = missing
    assert CudaBackend("linux").devices()[0].uuid is None


def test_open_retains_the_primary_context_and_close_releases_it(two_gpus: Recorder) -> None:
    device = CudaBackend("linux").open(1)
    assert device.native_handle(None) == OURS + 1
    assert SemaphoreHandleType.TIMELINE_SEMAPHORE_FD in device.capabilities.semaphore_import
    device.close()
    assert two_gpus.names.count("cuDevicePrimaryCtxRelease") == 1


@pytest.mark.parametrize("wrap", [int, cuda.CUcontext])
def test_borrowed_context_is_used_and_left_alone(two_gpus: Recorder, wrap: Callable[[int], Any]) -> None:
    info, device = CudaBackend("linux").borrow(wrap(0xE0))
    assert info.id == "cuda:1"
    assert device.native_handle(None) == 0xE0
    device.close()
    assert not any("PrimaryCtx" in name or name == "cuCtxDestroy" for name in two_gpus.names)


@pytest.mark.parametrize("native", [0, -1, True, "context", object(), cuda.CUcontext(0)])
def test_invalid_context_is_refused(two_gpus: Recorder, native: object) -> None:
    with pytest.raises(BadArgumentError) as caught:
        CudaBackend("linux").borrow(native)
    assert caught.value.reason == "bad_native"


def test_attribute_that_the_driver_does_not_know_counts_as_no(two_gpus: Recorder) -> None:
    two_gpus.codes["cuDeviceGetAttribute"] = 1
    declared = CudaBackend("linux").open(0).capabilities
    assert declared.semaphore_import == {SemaphoreHandleType.OPAQUE_FD}


def test_details_are_text(two_gpus: Recorder) -> None:
    details = CudaBackend("linux").details(0)
    assert details["compute_capability"] == "9.0"
    assert details["cuda_driver_api"] == "13.1"
    assert details["timeline_semaphores"] == "true"
    assert all(isinstance(value, str) for value in details.values())


def test_details_name_the_kernel_module_release_when_known(
    two_gpus: Recorder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_load, "_MODULE_VERSION", str(tmp_path / "version"))
    assert CudaBackend("linux").details(0)["kernel_driver"] == ""
    (tmp_path / "version").write_text("580.159.04\n")
    assert CudaBackend("linux").details(0)["kernel_driver"] == "580.159.04"


def test_context_is_given_back_when_the_device_is_not_made(
    two_gpus: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object) -> None:
        raise MemoryError

    monkeypatch.setattr("xsem_cuda.backend.CudaDevice", fail)
    with pytest.raises(MemoryError):
        CudaBackend("linux").open(1)
    assert [name for name in two_gpus.names if "PrimaryCtx" in name] == [
        "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease"]


def test_older_driver_gives_the_uuid_of_its_older_function(two_gpus: Recorder) -> None:
    def missing(_device: object) -> tuple[Any, ...]:
        raise RuntimeError('Function "cuDeviceGetUuid_v2" not found')

    two_gpus.answers["cuDeviceGetUuid_v2"] = missing
    assert [info.uuid for info in CudaBackend("linux").devices()] == [UUID, uuid.UUID(int=UUID.int + 1)]
    # Bindings 13 have only the second version, under the name of the first one.
    two_gpus.answers["cuDeviceGetUuid"] = missing
    assert [info.uuid for info in CudaBackend("linux").devices()] == [None, None]


def test_attribute_that_the_bindings_do_not_know_counts_as_no(
    two_gpus: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_gpus, "CUdevice_attribute", SimpleNamespace())
    details = CudaBackend("linux").details(0)
    assert (details["timeline_semaphores"], details["compute_capability"]) == ("false", "0.0")


# ---- missing parts
def unavailable() -> BackendUnavailableError:
    with pytest.raises(BackendUnavailableError) as caught:
        CudaBackend("linux").devices()
    checks = CudaBackend("linux").checks()
    assert not all(check.ok for check in checks)
    assert all(check.remedy for check in checks if not check.ok)
    return caught.value


def hide(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def import_module(_name: str) -> Any:
        raise error

    monkeypatch.setattr(importlib, "import_module", import_module)


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, ModuleNotFoundError("No module named 'cuda'"))
    error = unavailable()
    assert error.reason == "cuda_python_missing"
    assert "xsem[cuda13]" in str(error)
    assert _load.bindings_version() == ""


def test_broken_package_is_told_apart_from_a_missing_one(monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, ImportError("undefined symbol"))
    assert unavailable().reason == "cuda_python_broken"


@pytest.mark.parametrize(
    ("text", "reason"),
    [("Failed to dlopen libcuda.so.1", "libcuda_missing"),
     ('"cuda" is an NVIDIA driver library and can only be found via system search.', "libcuda_missing"),
     ('Function "cuGetProcAddress_v2" not found', "driver_too_old"),
     ("Failed to get __cuGetProcAddress_v2", "driver_too_old")],
)
def test_missing_library_is_told_apart_from_an_old_one(
    two_gpus: Recorder, text: str, reason: str
) -> None:
    def init(_flags: int) -> tuple[Any, ...]:
        raise RuntimeError(text)

    two_gpus.answers["cuInit"] = init
    error = unavailable()
    assert error.reason == reason
    assert text in str(error)


def test_permission_is_named_with_the_node(two_gpus: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "denied_nodes", lambda: ["/dev/nvidiactl"])
    two_gpus.codes["cuInit"] = 100
    error = unavailable()
    assert error.reason == "no_permission"
    assert "/dev/nvidiactl" in str(error)
    (check,) = [check for check in CudaBackend("linux").checks() if not check.ok]
    assert check.remedy.startswith("add the user to the group")
    assert "likely" not in check.detail


def test_driver_without_a_needed_function_is_too_old(two_gpus: Recorder) -> None:
    def missing() -> tuple[Any, ...]:
        raise RuntimeError('Function "cuDeviceGetCount" not found')

    two_gpus.answers["cuDeviceGetCount"] = missing
    assert unavailable().reason == "driver_too_old"


def test_checks_are_all_well_where_everything_is_there(
    two_gpus: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM", "1")
    checks = CudaBackend("linux").checks()
    assert all(check.ok for check in checks)
    assert {"cuda-python", "libcuda.so.1", "default stream"} <= {check.name for check in checks}


# ---- lazy loading
@pytest.mark.parametrize("mode", ["CU_MODULE_LAZY_LOADING", "CU_MODULE_EAGER_LOADING", None])
def test_lazy_loading_is_in_doctor_and_in_timeout_causes(
    two_gpus: Recorder, mode: str | None
) -> None:
    def loading() -> tuple[Any, ...]:
        if mode is None:   # a driver older than CUDA 11.7, which loads eagerly
            raise RuntimeError('Function "cuModuleGetLoadingMode" not found')
        return (getattr(two_gpus.CUmoduleLoadingMode, mode),)

    two_gpus.answers["cuModuleGetLoadingMode"] = loading
    backend = CudaBackend("linux")
    told = [check.detail for check in backend.checks() if check.name == "module loading"]
    causes = list(backend.open(0).timeout_causes)
    assert all("launch each kernel once before" in text for text in told)
    assert all("launch each kernel" not in text for text in causes)   # causes, not instructions
    for texts in (told, causes):
        assert bool(texts) is (mode == "CU_MODULE_LAZY_LOADING")
        for text in texts:
            assert "CUDA_MODULE_LOADING=EAGER" in text
