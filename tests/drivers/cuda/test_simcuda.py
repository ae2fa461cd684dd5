"""The stand-in for libcuda behaves like the driver: h200.json and further measurements on an H200."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from support.cuda_calls import ask, code, driver
from support.cuda_sim import on_stand_in, stand_in_environment
from support.paths import DRIVERS

import xsem
from xsem.types import MemoryHandleType, OwnedHandle, SemaphoreHandleType

FOLDER = DRIVERS
TIMELINE = SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
BINARY = SemaphoreHandleType.OPAQUE_FD
TIMELINE_TYPE, OPAQUE_TYPE = 9, 1
PAGE = 4096
BOUND_S = 20.0
SOON_S = 0.2  # a blocked call is not done by then; other calls get BOUND_S


def known_to_differ() -> dict[str, str]:
    """Return queries whose answers here differ from the GPU, each with the reason. A stale difference fails.

    The stand-in itself answers all queries as the GPU does.
    """
    if hasattr(driver().CUexternalMemoryHandleType, "CU_EXTERNAL_MEMORY_HANDLE_TYPE_DMABUF_FD"):
        return {}
    return {"import_memory_codes": "cuda-bindings 12 cannot ask for DMABUF_FD"}


# ---- as the GPU answers
def answers(*names: str, soon_s: float, parallel: int) -> dict[str, Any]:
    environment = stand_in_environment(PROBE_SOON_S=str(soon_s), PROBE_PARALLEL=str(parallel))
    ran = subprocess.run([sys.executable, str(FOLDER / "probe.py"), *names], env=environment, capture_output=True,
                         text=True, timeout=100, check=True)
    given: dict[str, Any] = json.loads(ran.stdout)
    return given


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_every_query_returns_the_value_of_the_gpu() -> None:
    wanted = json.loads((FOLDER / "h200.json").read_text())
    given = answers(soon_s=0.3, parallel=8)
    assert given.keys() == wanted.keys()
    other = [name for name in wanted if given[name] != wanted[name]]
    if other:
        # On a busy machine a late call looks like a blocked call.
        again = answers(*other, soon_s=5, parallel=2)
        other = [name for name in other if again[name] != wanted[name]]
    known = known_to_differ()
    assert {name: (wanted[name], given[name]) for name in other if name not in known} == {}
    assert [name for name in known if name not in other] == []


# ---- driver calls for the tests
class Rig:
    """The exporter, and the primary context of the driver, current in the thread of the test."""

    def __init__(self, host: xsem.Device) -> None:
        self.host = host
        self.exports: list[xsem.Semaphore] = []
        ask("cuInit", 0)
        self.device = ask("cuDeviceGet", 0)
        self.context = ask("cuDevicePrimaryCtxRetain", self.device)
        ask("cuCtxPushCurrent", self.context)

    def open_gates(self) -> None:
        """Meet all pending waits, so that a failed test does not block the next one."""
        for there in self.exports:
            with contextlib.suppress(xsem.XsemError):
                there.host_signal(2**64 - 1 if there.type is TIMELINE else None)

    def close(self) -> None:
        ask("cuCtxPopCurrent")
        ask("cuDevicePrimaryCtxRelease", self.device)

    def stream(self) -> Any:
        return ask("cuStreamCreate", 1)

    def exported(self, kind: SemaphoreHandleType = TIMELINE) -> tuple[xsem.Semaphore, int]:
        """Return a semaphore and a new fd for it."""
        there = self.host.create_semaphore(kind)
        self.exports.append(there)
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            return there, os.dup(desc.handle.fileno())

    def semaphore(
        self, kind: SemaphoreHandleType = TIMELINE, imported_as: int | None = None
    ) -> tuple[xsem.Semaphore, Any]:
        there, fd = self.exported(kind)
        if imported_as is None:
            imported_as = TIMELINE_TYPE if kind is TIMELINE else OPAQUE_TYPE
        return there, ask("cuImportExternalSemaphore", semaphore_descriptor(fd, imported_as))

    def memory(self, size: int, imported_size: int) -> tuple[xsem.Memory, Any]:
        there = self.host.create_memory(MemoryHandleType.OPAQUE_FD, size)
        with there.export() as desc:
            assert isinstance(desc.handle, OwnedHandle)
            fd = os.dup(desc.handle.fileno())
        native = driver().CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
        native.type = driver().CUexternalMemoryHandleType(OPAQUE_TYPE)
        native.handle.fd = fd
        native.size = imported_size
        return there, ask("cuImportExternalMemory", native)


def semaphore_descriptor(fd: int, imported_as: int = TIMELINE_TYPE) -> Any:
    native = driver().CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
    native.type = driver().CUexternalSemaphoreHandleType(imported_as)
    native.handle.fd = fd
    return native


def mapped(memory: Any, offset: int, size: int) -> Any:
    native = driver().CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
    native.offset, native.size = offset, size
    return ask("cuExternalMemoryGetMappedBuffer", memory, native)


def wait(semaphore: Any, value: int, stream: Any) -> int:
    params = driver().CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS()
    params.params.fence.value = value
    return code("cuWaitExternalSemaphoresAsync", [semaphore], [params], 1, stream)


def signal_to(semaphore: Any, value: int, stream: Any) -> int:
    params = driver().CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS()
    params.params.fence.value = value
    return code("cuSignalExternalSemaphoresAsync", [semaphore], [params], 1, stream)


@contextmanager
def rig() -> Iterator[Rig]:
    with xsem.open_device("host") as host:
        at = Rig(host)
        try:
            yield at
        except BaseException:
            at.open_gates()
            raise
        finally:
            at.close()


class Elsewhere:
    """A call on another thread: whether it blocks, and its result."""

    def __init__(self, at: Rig, work: Callable[[], int]) -> None:
        self.result: int | None = None

        def body() -> None:
            ask("cuCtxPushCurrent", at.context)
            self.result = work()
            ask("cuCtxPopCurrent")

        self._thread = threading.Thread(target=body, daemon=True)
        self._thread.start()

    def is_held(self) -> bool:
        self._thread.join(SOON_S)
        return self._thread.is_alive()

    def finish(self) -> int | None:
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive()
        return self.result


# ---- calls that block
@on_stand_in
@pytest.mark.parametrize("kind", [TIMELINE, BINARY])
def test_destroying_a_semaphore_blocks_behind_its_queued_wait(kind: SemaphoreHandleType) -> None:
    with rig() as at:
        there, here = at.semaphore(kind)
        assert wait(here, 1, at.stream()) == 0
        destroying = Elsewhere(at, lambda: code("cuDestroyExternalSemaphore", here))
        assert destroying.is_held()
        there.host_signal(1 if kind is TIMELINE else None)
        assert destroying.finish() == 0


@on_stand_in
def test_destroying_a_semaphore_blocks_behind_its_queued_signal() -> None:
    with rig() as at:
        gate_there, gate = at.semaphore()
        there, here = at.semaphore()
        stream = at.stream()
        assert wait(gate, 1, stream) == 0
        assert signal_to(here, 5, stream) == 0
        destroying = Elsewhere(at, lambda: code("cuDestroyExternalSemaphore", here))
        assert destroying.is_held()
        assert there.value() == 0
        gate_there.host_signal(1)
        assert destroying.finish() == 0
        assert there.value() == 5


@on_stand_in
def test_destroying_an_idle_semaphore_blocks_other_calls() -> None:
    """Measured on an H200: all these calls return when the wait is met. Event queries return earlier."""
    with rig() as at:
        gate_there, gate = at.semaphore()
        _there, here = at.semaphore()
        _there, other = at.semaphore()
        stream, second = at.stream(), at.stream()
        event = ask("cuEventCreate", 0)
        assert code("cuEventRecord", event, second) == 0
        assert wait(gate, 1, stream) == 0
        destroying = Elsewhere(at, lambda: code("cuDestroyExternalSemaphore", here))
        assert destroying.is_held()
        held = [
            Elsewhere(at, lambda: code("cuEventRecord", ask("cuEventCreate", 0), second)),
            Elsewhere(at, lambda: signal_to(other, 1, second)),
            Elsewhere(at, lambda: code("cuMemAlloc", 64)),
            Elsewhere(at, lambda: code("cuMemHostAlloc", 64, 0)),
            Elsewhere(at, lambda: code("cuStreamCreate", 1)),
        ]
        assert [each.is_held() for each in held] == [True] * len(held)
        assert code("cuEventQuery", event) == 0
        gate_there.host_signal(1)
        assert destroying.finish() == 0
        assert [each.finish() for each in held] == [0] * len(held)


@on_stand_in
@pytest.mark.parametrize("what", ["mapped", "own", "host"])
def test_freeing_memory_blocks_behind_a_wait_of_any_stream(what: str) -> None:
    with rig() as at:
        gate_there, gate = at.semaphore()
        _memory, imported = at.memory(PAGE, PAGE)
        address = {"mapped": lambda: mapped(imported, 0, PAGE), "own": lambda: ask("cuMemAlloc", 64),
                   "host": lambda: ask("cuMemHostAlloc", 64, 0)}[what]()
        assert wait(gate, 1, at.stream()) == 0
        assert code("cuDestroyExternalMemory", imported) == 0
        freeing = Elsewhere(at, lambda: code("cuMemFreeHost" if what == "host" else "cuMemFree", address))
        assert freeing.is_held()
        gate_there.host_signal(1)
        assert freeing.finish() == 0


@on_stand_in
def test_append_number_1021_behind_an_unmet_wait_blocks() -> None:
    with rig() as at:
        gate_there, gate = at.semaphore()
        there, here = at.semaphore()
        stream = at.stream()
        assert wait(gate, 1, stream) == 0
        for value in range(1, 1021):
            assert signal_to(here, value, stream) == 0
        one_more = Elsewhere(at, lambda: signal_to(here, 1021, stream))
        assert one_more.is_held()
        # The room of another stream is separate.
        other = at.stream()
        assert signal_to(here, 7, other) == 0
        ask("cuStreamSynchronize", other)   # before the first stream signals again
        gate_there.host_signal(1)
        assert one_more.finish() == 0
        ask("cuStreamSynchronize", stream)
        assert there.value() == 1021


@on_stand_in
def test_64_other_streams_run_while_one_waits() -> None:
    with rig() as at:
        gate_there, gate = at.semaphore()
        waiting = at.stream()
        assert wait(gate, 1, waiting) == 0
        for _ in range(64):
            stream = at.stream()
            assert signal_to(at.semaphore()[1], 1, stream) == 0
            ask("cuStreamSynchronize", stream)
        assert code("cuStreamQuery", waiting) == 600
        gate_there.host_signal(1)
        ask("cuStreamSynchronize", waiting)


@on_stand_in(CUDA_DEVICE_MAX_CONNECTIONS="2")
def test_as_many_waiting_streams_as_connections_stop_all_others() -> None:
    """Measured on an H200 with 1, 8 and 32 connections, and without the variable (8)."""
    with rig() as at:
        gate_there, gate = at.semaphore()
        waiting, running, other = at.stream(), at.stream(), at.stream()
        there, here = at.semaphore()
        assert wait(gate, 1, waiting) == 0
        assert signal_to(here, 1, running) == 0
        ask("cuStreamSynchronize", running)
        assert wait(gate, 2, running) == 0
        for stream in (other, at.stream()):
            assert signal_to(here, 2, stream) == 0
        assert Elsewhere(at, lambda: code("cuStreamSynchronize", other)).is_held()
        assert there.value() == 1
        gate_there.host_signal(1)     # one of the two
        ask("cuStreamSynchronize", other)
        assert there.value() == 2
        assert code("cuStreamQuery", running) == 600
        gate_there.host_signal(2)
        ask("cuStreamSynchronize", running)


@on_stand_in(CUDA_DEVICE_MAX_CONNECTIONS="2")
def test_streams_that_wait_for_events_stop_no_others() -> None:
    """Measured on an H200 with 2 and 8 connections: 36 streams waited, and a record on an idle stream was reached."""
    with rig() as at:
        gate_there, gate = at.semaphore()
        waiting, behind, other = at.stream(), [at.stream() for _ in range(3)], at.stream()
        event, recorded = (ask("cuEventCreate", 2) for _ in "12")
        assert wait(gate, 1, waiting) == 0
        assert code("cuEventRecord", event, waiting) == 0
        for stream in behind:
            assert code("cuStreamWaitEvent", stream, event, 0) == 0
        _, here = at.semaphore()
        assert signal_to(here, 1, other) == 0
        ask("cuStreamSynchronize", other)
        assert wait(gate, 2, other) == 0
        assert code("cuEventRecord", recorded, at.stream()) == 0
        assert code("cuEventQuery", recorded) == 0
        assert [code("cuStreamQuery", each) for each in behind] == [600] * 3
        gate_there.host_signal(2)
        for stream in (*behind, other):
            ask("cuStreamSynchronize", stream)


# ---- checked and unchecked arguments
@on_stand_in
def test_fd_is_taken_by_an_import_and_left_by_a_failed_one() -> None:
    with rig() as at:
        _there, fd = at.exported()
        ask("cuImportExternalSemaphore", semaphore_descriptor(fd))
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)
        pipe = os.pipe()
        files = [*pipe, os.open("/dev/null", os.O_RDWR), os.open("/", os.O_RDONLY), os.memfd_create("nothing")]
        for wrong in files:
            assert code("cuImportExternalSemaphore", semaphore_descriptor(wrong)) == 999
            os.close(wrong)  # raises if the fd is closed
        assert code("cuImportExternalSemaphore", semaphore_descriptor(files[0])) == 999


@on_stand_in
@pytest.mark.parametrize(("kind", "imported_as"), [(TIMELINE, OPAQUE_TYPE), (BINARY, TIMELINE_TYPE)])
def test_kind_is_not_checked(kind: SemaphoreHandleType, imported_as: int) -> None:
    with rig() as at:
        _there, here = at.semaphore(kind, imported_as)
        assert code("cuDestroyExternalSemaphore", here) == 0


@on_stand_in
@pytest.mark.parametrize("imported_size", [PAGE // 2, 16 * PAGE])
def test_size_is_not_checked_by_the_import_but_by_the_mapping(imported_size: int) -> None:
    with rig() as at:
        there, here = at.memory(PAGE, imported_size)
        address = mapped(here, 100, min(imported_size, PAGE) - 100)
        ask("cuMemsetD8", address, 7, 50)
        ask("cuCtxSynchronize")
        assert (there.map_buffer().numpy()[98:152] == [0] * 2 + [7] * 50 + [0] * 2).all()
        native = driver().CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
        for offset, size in ((0, imported_size + 1), (imported_size, 1), (0, 0)):
            native.offset, native.size = offset, size
            assert code("cuExternalMemoryGetMappedBuffer", here, native) == 1


@on_stand_in
def test_mapping_outlives_the_imported_memory() -> None:
    with rig() as at:
        there, here = at.memory(PAGE, PAGE)
        address = mapped(here, 0, PAGE)
        assert code("cuDestroyExternalMemory", here) == 0
        ask("cuMemsetD8", address, 9, PAGE)
        ask("cuCtxSynchronize")
        assert (there.map_buffer().numpy() == 9).all()


@on_stand_in
def test_values_go_backwards_and_compare_over_64_bits() -> None:
    with rig() as at:
        there, here = at.semaphore()
        stream = at.stream()
        for value in (10_000, 1, 2**63, 2**64 - 1, 0):
            assert signal_to(here, value, stream) == 0
            ask("cuStreamSynchronize", stream)
            assert there.value() == value
        for value in (2**31, 2**32 + 1, 2**63, 2**64 - 1):
            assert wait(here, value, stream) == 0
            there.host_signal(value - 1)
            assert code("cuStreamQuery", stream) == 600
            there.host_signal(value)
            ask("cuStreamSynchronize", stream)


@on_stand_in
def test_two_binary_signals_count_as_one() -> None:
    with rig() as at:
        there, here = at.semaphore(BINARY)
        stream = at.stream()
        assert signal_to(here, 0, stream) == signal_to(here, 0, stream) == 0
        assert wait(here, 0, stream) == 0
        ask("cuStreamSynchronize", stream)
        assert wait(here, 0, stream) == 0
        assert Elsewhere(at, lambda: code("cuStreamSynchronize", stream)).is_held()
        there.host_signal()
        ask("cuStreamSynchronize", stream)
        ask("cuDestroyExternalSemaphore", here)


@on_stand_in
def test_two_imports_share_one_payload() -> None:
    with rig() as at:
        there, fd = at.exported()
        again = os.dup(fd)
        first, second = (ask("cuImportExternalSemaphore", semaphore_descriptor(each)) for each in (fd, again))
        stream = at.stream()
        assert signal_to(first, 3, stream) == 0
        assert wait(second, 3, stream) == 0
        ask("cuStreamSynchronize", stream)
        assert there.value() == 3
        for each in (first, second):
            assert code("cuDestroyExternalSemaphore", each) == 0


@on_stand_in
def test_wait_for_a_destroyed_semaphore_is_an_invalid_value() -> None:
    with rig() as at:
        _there, here = at.semaphore()
        ask("cuDestroyExternalSemaphore", here)
        assert wait(here, 1, at.stream()) == 1
        assert signal_to(here, 1, at.stream()) == 1


# ---- crashes of the driver
PRELUDE = """
import os
from cuda.bindings import driver as cu
import xsem

def ask(function, *args):
    code, *rest = getattr(cu, function)(*args)
    assert int(code) == 0, (function, code)
    return rest[0] if rest else None

ask("cuInit", 0)
ask("cuCtxSetCurrent", ask("cuDevicePrimaryCtxRetain", ask("cuDeviceGet", 0)))
host = xsem.open_device("host")
with host.create_semaphore(xsem.SemaphoreHandleType.TIMELINE_SEMAPHORE_FD).export() as exported:
    desc = cu.CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
    desc.type = cu.CUexternalSemaphoreHandleType(9)
    desc.handle.fd = os.dup(exported.handle.fileno())
semaphore = ask("cuImportExternalSemaphore", desc)
stream = ask("cuStreamCreate", 1)
print("ready", flush=True)
"""


@pytest.mark.variants
@pytest.mark.parametrize(("crash", "where", "why"), [
    ("ask('cuDestroyExternalSemaphore', semaphore); ask('cuDestroyExternalSemaphore', semaphore)",
     "cuDestroyExternalSemaphore", "destroyed a second time"),
    ("ask('cuDestroyExternalSemaphore', cu.CUexternalSemaphore(0x700))", "cuDestroyExternalSemaphore",
     "not an external semaphore"),
    ("ask('cuStreamDestroy', stream); cu.cuStreamQuery(stream)", "cuStreamQuery", "stream was destroyed"),
    ("cu.cuEventQuery(cu.CUevent(0x700))", "cuEventQuery", "not an event"),
])
def test_crash_is_loud(crash: str, where: str, why: str) -> None:
    ran = subprocess.run([sys.executable, "-c", PRELUDE + crash], env=stand_in_environment(), capture_output=True,
                         text=True, timeout=50, check=False)
    assert ran.stdout == "ready\n", ran.stderr
    assert ran.returncode == -signal.SIGABRT
    assert f"abort in {where}" in ran.stderr
    assert why in ran.stderr


# ---- the bindings' structs
FIELDS: Final = {
    "handle": ("handle.fd", 4), "handle.win32.name": ("handle.win32.name", 8), "flags": ("flags", 4),
    "size": ("size", 8),
    "params.fence_value": ("params.fence.value", 8), "params.mutex_key": ("params.keyedMutex.key", 8),
    "params.mutex_timeout_ms": ("params.keyedMutex.timeoutMs", 4), "array": ("arrayDesc.Width", 8),
    "levels": ("numLevels", 4), "dst_x": ("dstXInBytes", 8), "height": ("Height", 8), "depth": ("Depth", 8),
    "count": ("numExtSems", 4), "CUDA_ARRAY3D_DESCRIPTOR.flags": ("Flags", 4),
    "CUDA_ARRAY3D_DESCRIPTOR.format": ("Format", 4), "result": ("result_out", 4),
    "location.id": ("location.id", 4), "flags.usage": ("allocFlags.usage", 2),
    "CUstreamBatchMemOpParams.value": ("waitValue.value64", 8),
    "CUstreamBatchMemOpParams.flags": ("waitValue.flags", 4), "CUDA_BATCH_MEM_OP_NODE_PARAMS.count": ("count", 4),
}


@on_stand_in
def test_layouts_are_those_of_the_bindings() -> None:
    folder = os.environ["LD_LIBRARY_PATH"].split(":")[0]
    printed = subprocess.run([f"{folder}/layouts"], capture_output=True, text=True, check=True, timeout=50).stdout
    lines = [line.split() for line in printed.splitlines()]
    assert len(lines) > 20
    for name, _size, field, offset in lines:
        struct = getattr(driver(), name)()
        path, width = FIELDS.get(f"{name}.{field}") or FIELDS[field]
        *outer, last = path.split(".")
        owner: Any = struct
        for part in outer:
            owner = getattr(owner, part)
        number = {2: 0x1234, 4: 0x12345, 8: 0x1234_5678_9ABC}[width]
        special = {"Format": lambda: driver().CUarray_format.CU_AD_FORMAT_FLOAT,
                   "result_out": lambda: driver().CUgraphInstantiateResult.CUDA_GRAPH_INSTANTIATE_ERROR}.get(last)
        value: Any = number if special is None else special()
        setattr(owner, last, value)
        data = ctypes.string_at(struct.getPtr() + int(offset), width)
        assert int.from_bytes(data, "little") == int(value), (name, field)


# ---- settings
@on_stand_in(SIMCUDA_DEVICES="3")
def test_each_device_has_a_stable_unique_uuid() -> None:
    ask("cuInit", 0)
    assert ask("cuDeviceGetCount") == 3
    code_text = ("from cuda.bindings import driver as cu; cu.cuInit(0);"
                 "print([bytes(cu.cuDeviceGetUuid(each)[1].bytes).hex() for each in range(3)])")
    elsewhere = subprocess.run([sys.executable, "-c", code_text], capture_output=True, text=True, check=True,
                               timeout=50)
    uuids = [bytes(ask("cuDeviceGetUuid", each).bytes).hex() for each in range(3)]
    assert len(set(uuids)) == 3
    assert elsewhere.stdout.strip() == str(uuids)


def test_older_driver_version_lacks_newer_functions() -> None:
    def has(name: str, version: str) -> bool:
        text = f"import ctypes; print(hasattr(ctypes.CDLL('libcuda.so.1'), {name!r}))"
        ran = subprocess.run([sys.executable, "-c", text], env=stand_in_environment(SIMCUDA_VERSION=version),
                             capture_output=True, text=True, check=True, timeout=50)
        return ran.stdout == "True\n"

    assert has("cuImportExternalSemaphore", "10010")
    assert not has("cuGetProcAddress", "10010")
    assert has("cuGetProcAddress", "13000")


# ---- the command
def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    stand_in_environment()  # skips if the stand-in cannot be built
    return subprocess.run([str(FOLDER / "run"), *arguments], env={**os.environ, **environment}, capture_output=True,
                          text=True, timeout=50, check=False)


def test_run_returns_the_status_and_prints_the_folder() -> None:
    text = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0) and exit(1); exit(42)"
    assert run("cuda", "--", sys.executable, "-c", text).returncode == 42
    where = run("cuda", "--where")
    assert (Path(where.stdout.strip()) / "libcuda.so.1").exists()


def test_run_reports_a_wrong_command_or_a_missing_compiler() -> None:
    assert run("cuda").returncode == run("metal", "--where").returncode == 2
    assert run("cuda", "--where", CC="no-such-compiler").returncode == 3
