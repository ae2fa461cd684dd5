"""Test the bytes of every struct that reaches the driver: 19 handle types, parameters and images.

The tests read the log of the stand-in, so the structs have passed through cuda-python.
"""

from __future__ import annotations

import functools
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from support.cuda_sim import stand_in_environment

from xsem.types import MemoryHandleType as M
from xsem.types import OsHandleKind
from xsem.types import SemaphoreHandleType as S

SEMAPHORES = [each for each in S if "cuda" in each.native]
MEMORIES = [each for each in M if "cuda" in each.native]
NAME = "Local\\främes \N{MOVIE CAMERA}"
HANDLE, KMT = 0x1234_5678_9ABC, 0x8765_4321   # a KMT handle has 32 bits
SIZE = 0x1_0000_2000

# One process for each platform that the stand-in simulates. It makes all calls that the tests check, and marks each
# part in the log. An fd comes from the host device; every other handle is a number that xsem passes on.
SCRIPT = f"""
import os, sys
import numpy as np
import xsem
from xsem.types import (OsHandleKind, SemaphoreKind, MemoryDesc, MemoryHandleType, MipmapDesc, OwnedHandle,
                        SemaphoreDesc, SemaphoreHandleType, SignalParams, WaitParams)
from xsem_cuda.backend import CudaBackend

S, M = SemaphoreHandleType, MemoryHandleType
NAME, HANDLE, KMT, SIZE = {NAME!r}, {HANDLE}, {KMT}, {SIZE}
host = xsem.open_device("host")
windows = os.environ.get("SIMCUDA_PLATFORM") == "windows"
device = CudaBackend("win32" if windows else "linux").open(0)
declared = device.capabilities
log = open(os.environ["SIMCUDA_LOG"], "a", buffering=1)

def mark(text):
    log.write("MARK " + text + "\\n")

def own_fd(exported):
    own = OwnedHandle(os.dup(exported.handle.fileno()))
    mark(f"fd {{own.fileno()}}")
    return own

def taken(imported, own):
    assert imported.handle == "taken"
    own.detach()
    return imported.token

def number_of(type):
    return KMT if type.os_handle_kind is OsHandleKind.KMT else HANDLE

def semaphore(type):
    if type.os_handle_kind is not OsHandleKind.FD:
        number = number_of(type) + type.native["cuda"][1]
        return device.import_semaphore(SemaphoreDesc(type=type, handle=number), None).token
    with host.create_semaphore(type).export() as exported:
        own = own_fd(exported)
        imported = device.import_semaphore(SemaphoreDesc(type=type, handle=own.fileno()), own)
        return taken(imported, own)

def memory(type, size=SIZE, **more):
    if type.os_handle_kind is not OsHandleKind.FD:
        desc = MemoryDesc(type=type, handle=number_of(type), allocation_size=size, **more)
        return device.import_memory(desc, None).token
    with host.create_memory(M.OPAQUE_FD, 1 << 20).export() as exported:
        own = own_fd(exported)
        imported = device.import_memory(MemoryDesc(type=type, handle=own.fileno(), allocation_size=size, **more), own)
        return taken(imported, own)

def under(label, act, *args, **more):
    mark("> " + label)
    return act(*args, **more)

for type in S:
    if type in declared.semaphore_import and not type.portable:
        under("semaphore " + type.name, semaphore, type)
        if type.os_handle_kind is OsHandleKind.NT:
            under("named semaphore " + type.name, device.import_semaphore, SemaphoreDesc(type=type, name=NAME), None)
for type in M:
    if type in declared.memory_import and not type.portable:
        imported = under("memory " + type.name, memory, type)
        under("buffer " + type.name, device.map_buffer, imported, 0x1000_3000, 0x2_0010)
        if type in (M.OPAQUE_FD, M.OPAQUE_WIN32, M.OPAQUE_WIN32_KMT, M.D3D12_HEAP):
            under("dedicated memory " + type.name, memory, type, dedicated=True)
        if type.os_handle_kind is OsHandleKind.NT:
            desc = MemoryDesc(type=type, name=NAME, allocation_size=SIZE)
            under("named memory " + type.name, device.import_memory, desc, None)
"""
ON_WINDOWS = """
kinds = [S.D3D12_FENCE, S.OPAQUE_WIN32, S.D3D11_KEYED_MUTEX, S.D3D11_FENCE, S.TIMELINE_SEMAPHORE_WIN32,
         S.D3D11_KEYED_MUTEX_KMT, S.OPAQUE_WIN32_KMT]
all_of_them = [semaphore(each) for each in kinds]
commands = device.create_queue()
under("batch of signals", commands.append_signal, all_of_them, [
    SignalParams(value=2**64 - 1), SignalParams(), SignalParams(key=2**63 + 1), SignalParams(value=0),
    SignalParams(value=2**32), SignalParams(key=5), SignalParams()], (), (), False)
under("batch of waits", commands.append_wait, all_of_them, [
    WaitParams(value=7), WaitParams(), WaitParams(key=2**63 + 1, timeout_ms=0), WaitParams(value=0),
    WaitParams(value=2**32), WaitParams(key=5, timeout_ms=1500), WaitParams()], (), (), False)
mutex = semaphore(S.D3D11_KEYED_MUTEX)
for timeout_ms in (0, 1, 2**31, 2**32 - 2, 2**32 - 1, None):
    commands.append_signal([mutex], [SignalParams(key=2)], (), (), False)   # so that each wait is met
    params = [WaitParams(key=2, timeout_ms=timeout_ms)]
    under(f"timeout {timeout_ms}", commands.append_wait, [mutex], params, (), (), False)
"""
ON_TEGRA = """
fences = np.zeros(4, "uint64")
first, second = fences.ctypes.data, fences.ctypes.data + 16
mark(f"fences {first}")
one, other = (device.import_semaphore(SemaphoreDesc.nvscisync(each), None).token for each in (0x1000, 0x2000))
timeline = semaphore(S.TIMELINE_SEMAPHORE_FD)
commands = device.create_queue()
under("batch of signals", commands.append_signal, [one, timeline, other], [
    SignalParams(nvscisync_fence=first, skip_nvscibuf_memsync=True), SignalParams(value=3),
    SignalParams(nvscisync_fence=second)], (), (), False)
under("batch of waits", commands.append_wait, [other, one, timeline], [
    WaitParams(nvscisync_fence=second, skip_nvscibuf_memsync=True), WaitParams(nvscisync_fence=first),
    WaitParams(value=3)], (), (), False)
"""
# Arguments of MipmapDesc, then the fields in the driver: offset; width, height, depth; format, channels, flags; levels.
UINT8, UINT16, UINT32, INT8, INT16, INT32, HALF, FLOAT = 0x01, 0x02, 0x03, 0x08, 0x09, 0x0A, 0x10, 0x20
LAYERED, SURFACE, CUBEMAP, COLOUR = 0x01, 0x02, 0x04, 0x20
IMAGES = {
    "(64, 0, 0), format='uint8', channels=1": (0, 64, 0, 0, UINT8, 1, 0, 1),
    "(64, 0, 0), format='int8', channels=2, layers=3": (0, 64, 0, 3, INT8, 2, LAYERED, 1),
    "(64, 32, 0), format='uint16', channels=4, levels=7, offset=65536": (65536, 64, 32, 0, UINT16, 4, 0, 7),
    "(64, 32, 0), format='int16', channels=1, layers=1": (0, 64, 32, 1, INT16, 1, LAYERED, 1),
    "(16, 8, 0), format='uint32', channels=2, layers=5, levels=3": (0, 16, 8, 5, UINT32, 2, LAYERED, 3),
    "(16, 8, 4), format='int32', channels=4, levels=5": (0, 16, 8, 4, INT32, 4, 0, 5),
    "(16, 16, 0), format='float16', channels=4, layers=6, cubemap=True": (0, 16, 16, 6, HALF, 4, CUBEMAP, 1),
    "(16, 16, 0), format='float32', channels=1, layers=12, cubemap=True, levels=2":
        (0, 16, 16, 12, FLOAT, 1, CUBEMAP | LAYERED, 2),
    "(16, 16, 0), format='uint8', channels=4, surface_load_store=True": (0, 16, 16, 0, UINT8, 4, SURFACE, 1),
    "(16, 16, 0), format='uint8', channels=4, color_attachment=True": (0, 16, 16, 0, UINT8, 4, COLOUR, 1),
    "(16, 16, 0), format='uint8', channels=4, color_attachment=True, surface_load_store=True, layers=6, cubemap=True":
        (0, 16, 16, 6, UINT8, 4, CUBEMAP | SURFACE | COLOUR, 1),
}
ON_LINUX = "".join(f"""
under({given!r}, device.map_mipmapped_array, memory(M.OPAQUE_FD, 1 << 20), MipmapDesc(extent={given}))
""" for given in IMAGES)
PARTS = {"windows": ON_WINDOWS, "tegra": ON_TEGRA, "linux": ON_LINUX}


class Call(NamedTuple):
    """One call with a struct: the bytes of the struct, and the name that it points to."""

    function: str
    data: bytes
    name: bytes


class Part(NamedTuple):
    """The log under one mark: the calls, and the noted numbers such as an fd or an address."""

    calls: list[Call]
    notes: dict[str, int]


@functools.cache
def log_of(platform: str) -> dict[str, Part]:
    """Return the parts of the log by their marks. The process must have ended with status 0."""
    more = {} if platform == "linux" else {"SIMCUDA_PLATFORM": platform}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        ran = subprocess.run([sys.executable, "-c", SCRIPT + PARTS[platform]], capture_output=True, text=True,
                             timeout=50, check=False, env=stand_in_environment(SIMCUDA_LOG=str(log), **more))
        assert ran.returncode == 0, ran.stderr
        lines = log.read_text(encoding="ascii").splitlines()
    parts: dict[str, Part] = {}
    part = parts.setdefault("", Part([], {}))
    for line in lines:
        if line.startswith("MARK > "):
            part = parts.setdefault(line.removeprefix("MARK > "), Part([], {}))
        elif line.startswith("MARK "):
            what, number = line.removeprefix("MARK ").split()
            part.notes[what] = int(number)
        else:
            match = re.match(r"\d+ (cu\w+) .*(?:desc|params)=([0-9a-f]+)(?: name=([0-9a-f]+))?", line)
            if match:
                part.calls.append(Call(match[1], bytes.fromhex(match[2]), bytes.fromhex(match[3] or "")))
    return parts


def part_of(handle_type: S | M, label: str) -> Part:
    platforms = {OsHandleKind.NT: "windows", OsHandleKind.KMT: "windows", OsHandleKind.NVSCI: "tegra"}
    platform = platforms.get(handle_type.os_handle_kind, "linux")
    return log_of("tegra" if handle_type is M.DMABUF_FD else platform)[f"{label} {handle_type.name}"]


def data_of(part: Part, function: str) -> bytes:
    (call,) = part.calls[:1]
    assert call.function == function
    return call.data


def expected_handle(handle_type: S | M, part: Part, more: int = 0) -> bytes:
    if handle_type.os_handle_kind is OsHandleKind.FD:
        return struct.pack("<i12x", part.notes["fd"])
    return struct.pack("<Q8x", (KMT if handle_type.os_handle_kind is OsHandleKind.KMT else HANDLE) + more)


def bindings_have(handle_type: M) -> bool:
    driver: Any = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed")
    return hasattr(driver.CUexternalMemoryHandleType, handle_type.native["cuda"][0])


# ---- descriptors
def test_types_are_nineteen() -> None:
    assert (len(SEMAPHORES), len(MEMORIES)) == (10, 9)


@pytest.mark.parametrize("handle_type", SEMAPHORES)
def test_descriptor_of_each_type_of_semaphore(handle_type: S) -> None:
    part = part_of(handle_type, "semaphore")
    data = data_of(part, "cuImportExternalSemaphore")
    number = handle_type.native["cuda"][1]
    assert data[:4] == struct.pack("<i", number)
    assert data[8:24] == expected_handle(handle_type, part, number)
    assert (len(data), any(data[24:])) == (96, False)   # flags and reserved fields


@pytest.mark.parametrize("handle_type", MEMORIES)
def test_descriptor_of_each_type_of_memory_and_of_its_buffer(handle_type: M) -> None:
    if not bindings_have(handle_type):
        pytest.skip("cuda-bindings 12 do not know this type, and the device does not declare it")
    part = part_of(handle_type, "memory")
    data = data_of(part, "cuImportExternalMemory")
    assert data[:4] == struct.pack("<i", handle_type.native["cuda"][1])
    assert data[8:24] == expected_handle(handle_type, part)
    implied = handle_type in (M.D3D12_RESOURCE, M.D3D11_RESOURCE, M.D3D11_RESOURCE_KMT)
    assert struct.unpack_from("<QI", data, 24) == (SIZE, 1 if implied else 0)
    assert (len(data), any(data[36:])) == (104, False)
    data = data_of(part_of(handle_type, "buffer"), "cuExternalMemoryGetMappedBuffer")
    assert struct.unpack_from("<QQI", data) == (0x1000_3000, 0x2_0010, 0)
    assert (len(data), any(data[20:])) == (88, False)


@pytest.mark.parametrize("handle_type", [M.OPAQUE_FD, M.OPAQUE_WIN32, M.OPAQUE_WIN32_KMT, M.D3D12_HEAP])
def test_memory_is_dedicated_where_that_is_said(handle_type: M) -> None:
    data = data_of(part_of(handle_type, "dedicated memory"), "cuImportExternalMemory")
    assert struct.unpack_from("<QI", data, 24) == (SIZE, 1)


@pytest.mark.parametrize(
    "handle_type", [each for each in SEMAPHORES + MEMORIES if each.os_handle_kind is OsHandleKind.NT])
def test_name_is_utf16_up_to_a_zero_and_handle_is_zero(handle_type: S | M) -> None:
    kind, function = ("semaphore", "cuImportExternalSemaphore") if isinstance(handle_type, S) else (
        "memory", "cuImportExternalMemory")
    part = part_of(handle_type, f"named {kind}")
    data = data_of(part, function)
    assert data[:4] == struct.pack("<i", handle_type.native["cuda"][1])
    assert data[8:16] == bytes(8)
    assert part.calls[0].name == NAME.encode("utf-16-le")   # the stand-in reads up to the terminating zero


# ---- parameters
class Fields(NamedTuple):
    value: int = 0
    fence: int = 0
    key: int = 0
    timeout_ms: int = 0
    flags: int = 0


def fields(part: Part, function: str) -> list[Fields]:
    data = data_of(part, function)
    assert len(data) % 144 == 0
    every = []
    for at in range(0, len(data), 144):
        one = data[at:at + 144]
        value, fence, key, timeout_ms = struct.unpack_from("<QQQI", one)
        (flags,) = struct.unpack_from("<I", one, 72)
        assert not any(one[28:72])
        assert not any(one[76:])
        every.append(Fields(value, fence, key, timeout_ms, flags))
    return every


def test_batch_of_all_of_windows_types_gives_each_its_own() -> None:
    named = {S[each] for each in re.findall(r"S\.(\w+)", ON_WINDOWS)}
    assert named == {each for each in SEMAPHORES if each.os_handle_kind in (OsHandleKind.NT, OsHandleKind.KMT)}
    log = log_of("windows")
    assert fields(log["batch of signals"], "cuSignalExternalSemaphoresAsync") == [
        Fields(value=2**64 - 1), Fields(), Fields(key=2**63 + 1), Fields(), Fields(value=2**32), Fields(key=5),
        Fields()]
    assert fields(log["batch of waits"], "cuWaitExternalSemaphoresAsync") == [
        Fields(value=7), Fields(), Fields(key=2**63 + 1), Fields(), Fields(value=2**32),
        Fields(key=5, timeout_ms=1500), Fields()]


@pytest.mark.parametrize(("given", "timeout_ms"), [(0, 0), (1, 1), (2**31, 2**31), (2**32 - 2, 2**32 - 2),
                                                   (2**32 - 1, 2**32 - 1), (None, 2**32 - 1)])
def test_timeout_of_a_keyed_mutex_is_the_given_one_or_infinite(given: int | None, timeout_ms: int) -> None:
    part = log_of("windows")[f"timeout {given}"]
    assert fields(part, "cuWaitExternalSemaphoresAsync") == [Fields(key=2, timeout_ms=timeout_ms)]


def test_fences_and_flags_of_nvscisync_are_each_objects_own() -> None:
    log = log_of("tegra")
    first = next(each.notes["fences"] for each in log.values() if "fences" in each.notes)
    skip_signal, skip_wait = 1, 2   # CUDA_EXTERNAL_SEMAPHORE_SIGNAL_ and …_WAIT_SKIP_NVSCIBUF_MEMSYNC
    assert fields(log["batch of signals"], "cuSignalExternalSemaphoresAsync") == [
        Fields(fence=first, flags=skip_signal), Fields(value=3), Fields(fence=first + 16)]
    assert fields(log["batch of waits"], "cuWaitExternalSemaphoresAsync") == [
        Fields(fence=first + 16, flags=skip_wait), Fields(fence=first), Fields(value=3)]


# ---- images
@pytest.mark.parametrize("given", IMAGES)
def test_descriptor_of_an_image(given: str) -> None:
    data = data_of(log_of("linux")[given], "cuExternalMemoryGetMappedMipmappedArray")
    assert struct.unpack_from("<QQQQIII4xI", data) == IMAGES[given]
    assert (len(data), any(data[52:])) == (120, False)
