"""NT objects for tests on Windows, made by kernel32 directly and not by xsem, and targets of spawned processes."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import xsem
from xsem.ipc.windows import transit
from xsem.ipc.windows.calls import OverlappedCall
from xsem.ipc.windows.deadlines import Deadline
from xsem.types import MemoryDesc, SemaphoreDesc

if TYPE_CHECKING:
    import pytest

if sys.platform == "win32":
    from xsem.data.windows.handles import object_type

READWRITE, RESERVE = 0x04, 0x04000000
SYNCHRONIZE = 0x00100000
INVALID = 2**64 - 1
_EXTENDED_HANDLES, _LENGTH_MISMATCH = 64, 0xC0000004
_OF_THE_SYSTEM = ("Semaphore", "Key", "Directory")
_GRACE_S = 20.0
_ERROR_INTERNAL_ERROR = 1359
BOUND_S = 100.0   # a process starts slowly under Wine on a busy machine


def kernel32() -> Any:
    if sys.platform != "win32":
        raise NotImplementedError
    library = ctypes.WinDLL("kernel32", use_last_error=True)
    for name in ("CreateEventW", "CreateSemaphoreW", "CreateMutexW", "CreateFileMappingW", "GetCurrentProcess",
                 "CreateFileW", "OpenEventW"):
        library[name].restype = ctypes.c_void_p
    return library


def under_wine() -> bool:
    if sys.platform != "win32":
        raise NotImplementedError
    return hasattr(ctypes.WinDLL("ntdll"), "wine_get_version")


def starts_again(patch: pytest.MonkeyPatch) -> None:
    """Let the start of a process under Wine try again after ERROR_INTERNAL_ERROR.

    Wine 8 gives this error if the new process ends before it has begun, seen once in some thousand starts on a busy
    machine. No process exists then.
    """
    if sys.platform != "win32" or not under_wine():
        return
    import _winapi

    create = _winapi.CreateProcess

    def create_again(*arguments: Any) -> Any:
        for _ in range(2):
            try:
                return create(*arguments)
            except OSError as error:
                if error.winerror != _ERROR_INTERNAL_ERROR:
                    raise
                print("Wine has started no process: once more", file=sys.stderr)
        return create(*arguments)

    patch.setattr(_winapi, "CreateProcess", create_again)


def handles() -> dict[int, str]:
    """Return the type of each open handle of this process that a test can leave behind.

    Without semaphores, because each lock of CPython 3.11 is one. Without the keys of the registry and the directory of
    names, which Windows keeps from the first use. Without objects whose type has no name: Wine has such objects.
    """
    if sys.platform == "win32":
        found = {handle: object_type(handle) for handle in _all_handles()}
        return {handle: name for handle, name in found.items() if name and name not in _OF_THE_SYSTEM}
    raise NotImplementedError


def keys() -> dict[int, str]:
    """Return the open handles of the registry's keys, and the name of their type."""
    if sys.platform == "win32":
        return {handle: "Key" for handle in _all_handles() if object_type(handle) == "Key"}
    raise NotImplementedError


@contextmanager
def handles_as_before() -> Iterator[None]:
    """Require as many handles of each type after the block as before, because pytest replaces handles of files.

    The handle of a thread that has ended can be closed later.
    """
    before = Counter(handles().values())
    yield
    while transit._left:   # messages to this process that no test received: they would wait for its end
        transit._left.pop().free()
    deadline = time.monotonic() + _GRACE_S
    while left := Counter(handles().values()) - before:
        gc.collect()
        assert time.monotonic() < deadline, f"handles are left behind: {dict(left)}"
        time.sleep(0.01)


def handle_count() -> int:
    """Return the number of all open handles of this process. Under Wine 8, GetProcessHandleCount always returns 0."""
    return len(_all_handles())


def _all_handles() -> list[int]:
    """Return the open handles of this process, from the list of all handles of the system."""
    if sys.platform != "win32":
        raise NotImplementedError
    query, size = ctypes.WinDLL("ntdll").NtQuerySystemInformation, 1 << 20
    while True:
        into = ctypes.create_string_buffer(size)
        status = query(_EXTENDED_HANDLES, into, size, None) & 0xFFFFFFFF
        if status != _LENGTH_MISMATCH:
            break
        size *= 2   # it has the handles of all processes
    assert status == 0, hex(status)
    total, _ = struct.unpack_from("<QQ", into)
    entries = struct.iter_unpack("<QQQIHHII", into.raw[16:16 + 40 * total])
    return [handle for _, pid, handle, *_ in entries if pid == os.getpid()]


class _SecurityAttributes(ctypes.Structure):
    _fields_ = (("size", ctypes.c_uint32), ("descriptor", ctypes.c_void_p), ("inherit", ctypes.c_int))


def _granting(access: int | None) -> Any:
    """Return the security of an object whose DACL grants this access to everybody. None: no DACL."""
    if sys.platform != "win32" or access is None:
        return None
    made = ctypes.c_void_p()
    assert ctypes.WinDLL("advapi32").ConvertStringSecurityDescriptorToSecurityDescriptorW(
        ctypes.c_wchar_p(f"D:(A;;{access:#x};;;WD)"), 1, ctypes.byref(made), None)
    return ctypes.byref(_SecurityAttributes(ctypes.sizeof(_SecurityAttributes), made.value, 0))


def event(manual: bool = False, name: str | None = None, access: int | None = None) -> int:
    return int(kernel32().CreateEventW(_granting(access), manual, False, name))


def section(
    size: int = 4096, flags: int = 0, file: int = INVALID, name: str | None = None, access: int | None = None
) -> int:
    security = _granting(access)
    return int(kernel32().CreateFileMappingW(ctypes.c_void_p(file), security, READWRITE | flags, 0, size, name))


def timeline(name: str | None = None) -> int:
    """Create a timeline of the host device with value 0 (docs/host-objects.md)."""
    handle = section(4096, name=name)
    library = kernel32()
    library.MapViewOfFile.restype = ctypes.c_void_p
    view = library.MapViewOfFile(ctypes.c_void_p(handle), 2, 0, 0, ctypes.c_size_t(4096))
    head = struct.pack("<QIIQ16s", 0x314E4C544D455358, 2, 2, 0, os.urandom(16))
    ctypes.memmove(view, head, len(head))
    assert library.UnmapViewOfFile(ctypes.c_void_p(view))
    return handle


def mutex() -> int:
    return int(kernel32().CreateMutexW(None, False, None))


def counting_semaphore() -> int:
    return int(kernel32().CreateSemaphoreW(None, 0, 9, None))


def process() -> int:
    """Return a real handle of this process."""
    return with_access(INVALID, 0x1000)


def with_access(handle: int, access: int) -> int:
    """Duplicate a handle with less access."""
    return _duplicate(handle, access, 0)


def duplicate(handle: int) -> int:
    """Duplicate a handle with the same access."""
    return _duplicate(handle, 0, 2)


def _duplicate(handle: int, access: int, options: int) -> int:
    out = ctypes.c_void_p()
    me = ctypes.c_void_p(INVALID)
    assert kernel32().DuplicateHandle(me, ctypes.c_void_p(handle), me, ctypes.byref(out), access, False, options)
    return int(out.value or 0)


def close(handle: int) -> bool:
    return bool(kernel32().CloseHandle(ctypes.c_void_p(handle)))


def is_open(handle: int) -> bool:
    flags = ctypes.c_uint32()
    return bool(kernel32().GetHandleInformation(ctypes.c_void_p(handle), ctypes.byref(flags)))


def set_event(handle: int) -> None:
    assert kernel32().SetEvent(ctypes.c_void_p(handle))


def is_signalled(handle: int) -> bool:
    """Return whether a wait without a timeout ends at once. It resets a synchronization event."""
    return int(kernel32().WaitForSingleObject(ctypes.c_void_p(handle), 0)) == 0


@contextmanager
def closing(handle: int) -> Iterator[int]:
    yield handle
    assert close(handle), "other code has closed the handle"


def write_to_pipe(pipe: xsem.ipc.Pipe, data: bytes) -> None:
    """Send bytes as one message of the pipe."""
    with OverlappedCall(pipe._handle, "WriteFile", ctypes.create_string_buffer(data, len(data))) as transfer, transfer:
        transfer.start()
        assert transfer.wait(Deadline(BOUND_S))
    assert transfer.code == 0


# ---- targets of spawned processes
def consume(timeline: SemaphoreDesc, binary: SemaphoreDesc, memory: MemoryDesc, frames: int) -> None:
    """For each frame: wait for the timeline, check and change the memory, signal the binary semaphore."""
    with xsem.open_device("host") as device:
        turns, done = device.import_semaphore(timeline), device.import_semaphore(binary)
        pixels = device.import_memory(memory).map_buffer()
        for each in (timeline, binary, memory):
            each.close()
        commands = device.create_command_list()
        for frame in range(1, frames + 1):
            turns.host_wait(frame, timeout_s=BOUND_S)
            view = pixels.numpy()
            assert (view == frame).all(), frame
            view[:] = 100 + frame
            commands.append_signal(done)
            commands.synchronize(timeout_s=BOUND_S)


def wait_for_ever(timeline: SemaphoreDesc, begun: SemaphoreDesc) -> None:
    with xsem.open_device("host") as device:
        turns = device.import_semaphore(timeline)
        device.import_semaphore(begun).host_signal()
        turns.host_wait(1000, timeout_s=600)


def overwrite_for_ever(timeline: SemaphoreDesc, begun: SemaphoreDesc) -> None:
    """Overwrite the timeline's section with random bytes, head and identifier included."""
    from xsem.portable.windows import map_shared

    assert isinstance(timeline.handle, xsem.OwnedHandle)
    pages = map_shared(timeline.handle.fileno(), 4096)
    ctypes.memmove(pages.address, os.urandom(4096), 4096)
    with xsem.open_device("host") as device:
        device.import_semaphore(begun).host_signal()
    while True:
        ctypes.memmove(pages.address, os.urandom(4096), 4096)


def answer_from_pipe(pipe: Any) -> None:
    """Signal the binary semaphore of a pipe of multiprocessing, and send its descriptor back. End after the receipt."""
    with pipe, pipe.recv() as desc:
        _signal(desc)
        pipe.send(desc)
        pipe.recv()


def signalled(desc: SemaphoreDesc) -> int:
    """Signal a binary semaphore; return the id of this process."""
    with desc:
        _signal(desc)
    return os.getpid()


def _signal(desc: SemaphoreDesc) -> None:
    with xsem.open_device("host") as device:
        device.import_semaphore(desc).host_signal()


def take_turns(mutex: SemaphoreDesc, memory: MemoryDesc, turns: int) -> None:
    """With CUDA, take a keyed mutex with key 1, add 1 to the bytes, and release it with key 0."""
    with xsem.open_device("cuda:0") as cuda:
        keyed = cuda.import_semaphore(mutex)
        pixels = cuda.import_memory(memory).map_buffer(0, 4096)
        for each in (mutex, memory):
            each.close()
        host = cuda.host_buffer(4096)
        commands = cuda.create_command_list()
        for _ in range(turns):
            commands.append_wait(keyed, xsem.WaitParams(key=1, timeout_ms=int(BOUND_S * 1000)))
            commands.append_copy(host, pixels)
            commands.synchronize(timeout_s=BOUND_S)
            host.numpy()[:] += 1
            commands.append_copy(pixels, host)
            commands.append_signal(keyed, xsem.SignalParams(key=0))
            commands.synchronize(timeout_s=BOUND_S)


def consume_from_pipe(name: str, frames: int) -> None:
    """As `consume`, with the descriptors of a pipe."""
    with xsem.ipc.connect(name, timeout_s=BOUND_S) as pipe:
        with xsem.ipc.receive(pipe, timeout_s=BOUND_S) as message:
            (timeline, binary), (memory,) = message.semaphores, message.memories
            consume(timeline, binary, memory, frames)
        xsem.ipc.send(pipe, payload=b"done")


def connect_and_sleep(name: str) -> None:
    """Send two events, a message without handles and an event. Then signal the second event, and sleep."""
    pipe = xsem.ipc.connect(name, timeout_s=BOUND_S)
    sent = event()
    desc = SemaphoreDesc.opaque_win32(event(), device_uuid=None)
    xsem.ipc.send(pipe, desc, SemaphoreDesc.opaque_win32(sent, device_uuid=None))
    xsem.ipc.send(pipe, payload=b"last")
    xsem.ipc.send(pipe, desc)
    kernel32().SetEvent(ctypes.c_void_p(sent))
    time.sleep(600)


def echo_from_queue(there: Any, back: Any) -> None:
    """Signal a binary semaphore of the queue, and send it back, until None comes."""
    while (found := there.get(timeout=BOUND_S)) is not None:
        desc, other = found[0], found[1]["twice"]
        with xsem.open_device("host") as device:
            device.import_semaphore(other).host_signal()
        other.close()
        back.put(desc)


def stays_pending(commands: xsem.CommandList) -> None:
    """Check that an appended wait, once it has reached the driver's worker, is not met."""
    time.sleep(0.05)
    assert not commands.query()
