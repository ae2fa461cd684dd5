"""Test the error class and the cause of every return code that CUDA's documents list for a call."""

from __future__ import annotations

import ctypes
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import clauses
import numpy as np
import pytest
from support.cuda_sim import on_stand_in
from support.open_files import few_more_files
from support.paths import ROOT

import xsem
from xsem.types import MemoryHandleType, MipmapDesc, SemaphoreHandleType
from xsem_cuda.results import call

DOCS = ROOT / "docs" / "cuda.md"

# The "Returns" list of each call in the driver API's reference (section 6.20), without CUDA_SUCCESS. The list of the
# last call is in the reference of cuDeviceGetNvSciSyncAttributes.
INITIALIZED, VALUE, HANDLE = "CUDA_ERROR_NOT_INITIALIZED", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_INVALID_HANDLE"
SUPPORTED, SYSTEM, TIMEOUT = "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_OPERATING_SYSTEM", "CUDA_ERROR_TIMEOUT"
LISTED: Mapping[str, tuple[str, ...]] = {
    "cuDestroyExternalMemory": (INITIALIZED, HANDLE),
    "cuDestroyExternalSemaphore": (INITIALIZED, HANDLE),
    "cuExternalMemoryGetMappedBuffer": (INITIALIZED, VALUE, HANDLE),
    "cuExternalMemoryGetMappedMipmappedArray": (INITIALIZED, VALUE, HANDLE),
    "cuImportExternalMemory": (INITIALIZED, VALUE, HANDLE, SYSTEM),
    "cuImportExternalSemaphore": (INITIALIZED, SUPPORTED, HANDLE, SYSTEM),
    "cuSignalExternalSemaphoresAsync": (INITIALIZED, HANDLE, SUPPORTED),
    "cuWaitExternalSemaphoresAsync": (INITIALIZED, HANDLE, SUPPORTED, TIMEOUT),
    "cuDeviceGetNvSciSyncAttributes": ("CUDA_ERROR_DEINITIALIZED", INITIALIZED, VALUE, HANDLE,
                                       "CUDA_ERROR_INVALID_DEVICE", SUPPORTED, "CUDA_ERROR_OUT_OF_MEMORY"),
}
# The runtime's page of cudaImportExternalMemory lists the first three. Notes and descriptions name the others.
RUNTIME: Mapping[str, str | None] = {
    "cudaErrorInvalidValue": VALUE, "cudaErrorInvalidResourceHandle": HANDLE, "cudaErrorOperatingSystem": SYSTEM,
    "cudaErrorNotSupported": SUPPORTED,
    "cudaErrorInitializationError": INITIALIZED, "cudaErrorNoDevice": "CUDA_ERROR_NO_DEVICE",
    "cudaErrorNotPermitted": "CUDA_ERROR_NOT_PERMITTED",
    "cudaErrorInsufficientDriver": None,   # only of the runtime: xsem reports it in the search for devices
}

USUAL = {INITIALIZED: (xsem.DriverError, "not_initialized"), VALUE: (xsem.DriverError, "invalid_value"),
         HANDLE: (xsem.DriverError, "invalid_handle"), SUPPORTED: (xsem.DriverError, "not_supported"),
         SYSTEM: (xsem.DriverError, "operating_system"), TIMEOUT: (xsem.WaitTimeoutError, "timeout"),
         "CUDA_ERROR_DEINITIALIZED": (xsem.DeviceLostError, "driver_shut_down"),
         "CUDA_ERROR_INVALID_DEVICE": (xsem.DriverError, "driver_error"),
         "CUDA_ERROR_OUT_OF_MEMORY": (xsem.OutOfMemoryError, "out_of_memory"),
         "CUDA_ERROR_NO_DEVICE": (xsem.DriverError, "driver_error"),
         "CUDA_ERROR_NOT_PERMITTED": (xsem.DriverError, "not_permitted")}
# Calls that take a handle: the handle is bad, or its type is not supported.
TAKING = {HANDLE: (xsem.BadHandleError, "refused_by_driver"), SUPPORTED: (xsem.UnsupportedError, "not_supported")}
TAKES = ("cuImportExternalMemory", "cuImportExternalSemaphore", "cuDeviceGetNvSciSyncAttributes")


def expected(name: str, code_name: str) -> tuple[type[xsem.XsemError], str]:
    return TAKING[code_name] if name in TAKES and code_name in TAKING else USUAL[code_name]


def number_of(code_name: str) -> int:
    return int(getattr(importlib.import_module("cuda.bindings.driver").CUresult, code_name))


class World(NamedTuple):
    host: xsem.Device
    cuda: xsem.Device
    semaphore: xsem.Semaphore
    memory: xsem.Memory


@contextmanager
def world() -> Iterator[World]:
    with xsem.open_device("host") as host, xsem.open_device("cuda:0") as cuda:
        yield World(host, cuda, semaphore(host, cuda), memory(host, cuda))


def driver_of(at: World) -> Any:
    return at.cuda._device_state.driver


def semaphore(host: xsem.Device, cuda: xsem.Device) -> xsem.Semaphore:
    with host.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD).export(for_device=cuda) as desc:
        return cuda.import_semaphore(desc)


def memory(host: xsem.Device, cuda: xsem.Device) -> xsem.Memory:
    with host.create_memory(MemoryHandleType.OPAQUE_FD, 4096).export(for_device=cuda) as desc:
        return cuda.import_memory(desc)


IMAGE = MipmapDesc(extent=(16, 8, 0), format="uint8", channels=4)
ACTS: Mapping[str, Callable[[World], object]] = {
    "cuDestroyExternalMemory": lambda at: driver_of(at).release_memory(at.memory._memory),
    "cuDestroyExternalSemaphore": lambda at: driver_of(at).release_semaphore(at.semaphore._state.token),
    "cuExternalMemoryGetMappedBuffer": lambda at: at.memory.map_buffer(),
    "cuExternalMemoryGetMappedMipmappedArray": lambda at: at.memory.map_mipmapped_array(IMAGE),
    "cuImportExternalMemory": lambda at: memory(at.host, at.cuda),
    "cuImportExternalSemaphore": lambda at: semaphore(at.host, at.cuda),
    "cuSignalExternalSemaphoresAsync": lambda at: at.cuda.create_command_list().append_signal(at.semaphore, 1),
    "cuWaitExternalSemaphoresAsync": lambda at: at.cuda.create_command_list().append_wait(at.semaphore, 0),
    "cuDeviceGetNvSciSyncAttributes": lambda at: at.cuda.nvscisync_attributes(
        np.zeros(3, "uint64").ctypes.data, signal=True),
}


@contextmanager
def answering(name: str, code: int) -> Iterator[None]:
    """Have the driver's function return that code and do nothing."""
    library = ctypes.CDLL("libcuda.so.1")
    library.simcuda_fail(f"{name}:{code}".encode(), None)
    try:
        yield
    finally:
        library.simcuda_fail(None, None)


def refusal(name: str, code: int) -> xsem.XsemError:
    with world() as at, answering(name, code), pytest.raises(xsem.XsemError) as caught:
        ACTS[name](at)
    return caught.value


@on_stand_in(SIMCUDA_PLATFORM="tegra")
@pytest.mark.parametrize(("name", "code_name"), [(name, each) for name, codes in LISTED.items() for each in codes])
def test_each_listed_code_of_each_call_has_its_class(name: str, code_name: str) -> None:
    error = refusal(name, number_of(code_name))
    assert (type(error), error.reason) == expected(name, code_name)
    assert (error.call, error.code, error.code_name) == (name, number_of(code_name), code_name)
    assert not getattr(error, "from_earlier_work", False)


@on_stand_in(SIMCUDA_PLATFORM="tegra")
@pytest.mark.parametrize("name", ["cuImportExternalSemaphore", "cuDestroyExternalSemaphore"])
def test_code_that_the_bindings_do_not_know_keeps_its_number(name: str) -> None:
    error = refusal(name, 12345)
    assert (type(error), error.reason, error.call, error.code, error.code_name) == (
        xsem.DriverError, "unknown_code", name, 12345, None)


@on_stand_in(SIMCUDA_PLATFORM="tegra")
@pytest.mark.parametrize("name", LISTED)
def test_not_permitted_is_neither_bad_handle_nor_earlier_work(name: str) -> None:
    error = refusal(name, number_of("CUDA_ERROR_NOT_PERMITTED"))
    assert isinstance(error, xsem.DriverError)
    assert (error.reason, error.from_earlier_work) == ("not_permitted", False)


# ---- causes
# Beside the listed codes: those that every call may return, and those of a lost context.
ANY = ("CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_DEINITIALIZED", "CUDA_ERROR_INVALID_CONTEXT", SYSTEM, HANDLE, SUPPORTED,
       VALUE, INITIALIZED, "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_UNKNOWN",
       "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA_ERROR_ECC_UNCORRECTABLE")


@on_stand_in(SIMCUDA_PLATFORM="tegra")
@pytest.mark.parametrize("name", [each for each in LISTED if "Destroy" not in each])
def test_each_code_of_a_plain_object_has_call_code_and_causes_without_nvsci(name: str) -> None:
    texts: set[str] = set()
    with world() as at:
        for code_name in ANY:
            code = number_of(code_name)
            with answering(name, code), pytest.raises(xsem.XsemError) as caught:
                ACTS[name](at)
            error = caught.value
            assert f"{name} returned {code_name} ({code})" in str(error)
            assert error.likely_causes, code_name
            assert "NvSci" in name or "NvSci" not in str(error)
            texts.add(error.message + str(error.likely_causes))
    assert len(texts) >= len(ANY) - 2   # only the codes of a lost context share a text, and those of a bad handle


OBJECT = 0x7000_0000_1000   # an address that no code reads


@on_stand_in(SIMCUDA_PLATFORM="tegra")
@pytest.mark.parametrize(("operation", "use"), [("signal", "SIGNAL"), ("wait", "WAIT")])
@pytest.mark.parametrize(("code_name", "cause"), [(SUPPORTED, "CUDA_NVSCISYNC_ATTR_"), (VALUE, "another NvSciSyncObj")])
def test_causes_of_nvscisync_are_those_of_its_object_only(
    operation: str, use: str, code_name: str, cause: str
) -> None:
    fence = np.array([OBJECT, 1], "uint64")
    with world() as at:
        objects = at.cuda.import_semaphore(xsem.SemaphoreDesc.nvscisync(OBJECT))
        commands = at.cuda.create_command_list()
        append: Any = getattr(commands, f"append_{operation}")
        params = xsem.SignalParams if operation == "signal" else xsem.WaitParams
        name = f"cu{operation.capitalize()}ExternalSemaphoresAsync"
        with answering(name, number_of(code_name)), pytest.raises(xsem.DriverError) as caught:
            append(objects, params(nvscisync_fence=fence.ctypes.data))
        assert (cause + use if cause.endswith("_") else cause) in caught.value.likely_causes[0]
        with answering(name, number_of(code_name)), pytest.raises(xsem.DriverError) as plain:
            append(at.semaphore, 1)
        assert "NvSci" not in str(plain.value)


@on_stand_in(SIMCUDA_PLATFORM="tegra")
@pytest.mark.parametrize("code_name", [HANDLE, SUPPORTED, "CUDA_ERROR_UNKNOWN"])
@pytest.mark.parametrize(("name", "named"), [("cuImportExternalSemaphore", "timeline_semaphore_fd"),
                                             ("cuImportExternalMemory", "opaque_fd")])
def test_refused_import_names_its_handle_type(name: str, named: str, code_name: str) -> None:
    error = refusal(name, number_of(code_name))
    assert named in error.likely_causes[0]
    assert "a memory" not in str(error)
    if isinstance(error, xsem.UnsupportedError):
        assert error.capability == {"timeline_semaphore_fd": "semaphore.import", "opaque_fd": "memory.import"}[named]


@pytest.mark.parametrize("code", [802, 803, 807, 34])
def test_code_about_the_machine_is_not_of_earlier_work(code: int) -> None:
    error = failing_call(code)
    assert (error.reason, error.from_earlier_work) == ("driver_error", False)
    assert "nvidia-smi" in error.message


@pytest.mark.parametrize(("code", "name", "left"), [
    (2, "cuMemCreate", 0), (304, "cuMemCreate", 0), (100, "cuInit", 20), (999, "cuDevicePrimaryCtxRetain", 20)])
def test_code_with_a_full_table_of_file_descriptors_is_the_limit(code: int, name: str, left: int) -> None:
    with few_more_files(left):
        error = failing_call(code, name)
    assert (error.reason, error.call, error.code, error.likely_causes) == ("fd_limit", name, code, ())


def failing_call(code: int, name: str = "cuStreamCreate") -> Any:
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")

    def function() -> tuple[Any]:
        return (driver.CUresult(code),)

    function.__name__ = name
    with pytest.raises(xsem.XsemError) as caught:
        call(function)
    return caught.value


# ---- names of the runtime
@pytest.mark.parametrize("name", [each for each in RUNTIME if RUNTIME[each]])
def test_runtime_names_are_numbers_of_the_driver(name: str) -> None:
    runtime = pytest.importorskip("cuda.bindings.runtime", reason="cuda-bindings is not installed")
    driver: Any = importlib.import_module("cuda.bindings.driver")
    code = driver.CUresult(int(getattr(runtime.cudaError_t, name)))
    assert code.name == RUNTIME[name]

    def cuImportExternalMemory() -> tuple[Any]:  # noqa: N802
        return (code,)

    with pytest.raises(xsem.XsemError) as caught:
        call(cuImportExternalMemory)
    if code.name != "CUDA_ERROR_NO_DEVICE":   # only at the start of the driver, as BackendUnavailableError
        assert (type(caught.value), caught.value.reason) == expected("cuImportExternalMemory", code.name)
        assert not getattr(caught.value, "from_earlier_work", False)


def test_every_listed_name_is_in_the_documentation() -> None:
    text = DOCS.read_text(encoding="utf-8")
    table = text[text.index("| the driver returned"):]
    table = table.partition("\n\n")[0]
    named = {code for codes in LISTED.values() for code in codes} | {code for code in RUNTIME.values() if code}
    for name in [each.removeprefix("CUDA_ERROR_") for each in named] + list(RUNTIME):
        assert f"`{name}`" in table, name


# ---- the documents
@pytest.fixture(scope="module")
def documents() -> Path:
    folder = clauses.seeds_folder()
    if folder is None:
        pytest.skip("the documents are not here: XSEM_SEEDS names their folder, or they lie in ../shared/seeds")
    return folder


def listed_in(text: str) -> dict[str, tuple[str, ...]]:
    """Return the functions with the codes of their "Returns" lists, in order, without success."""
    found: dict[str, tuple[str, ...]] = {}
    name = ""
    for match in re.finditer(r"^\s*CUresult (\w+) \(|Returns:?\s+(CUDA_SUCCESS[^\n]*)", text, re.MULTILINE):
        if match[1]:
            name = match[1]
        else:
            found[name] = tuple(re.findall(r"CUDA_ERROR_\w+", match[2]))
    return found


def test_driver_apis_reference_lists_these(documents: Path) -> None:
    found = listed_in((documents / "cuda-driver-api.md").read_text(encoding="utf-8"))
    assert found == {name: codes for name, codes in LISTED.items() if "External" in name}


def test_older_manual_lists_no_others(documents: Path) -> None:
    found = listed_in((documents / "cuda-10.1-manual-page.txt").read_text(encoding="utf-8"))
    assert len(found) == 8
    for name, codes in found.items():
        assert set(codes) <= set(LISTED[name])
        assert codes


def test_runtimes_pages_list_these(documents: Path) -> None:
    text = "".join((documents / name).read_text(encoding="utf-8")
                   for name in ("cuda-runtime-api.txt", "cuda-runtime-import-memory.txt"))
    assert set(re.findall(r"cudaError[A-Z]\w+", text)) == set(RUNTIME)
