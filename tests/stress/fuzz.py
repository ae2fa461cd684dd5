"""Random descriptors: any handle as any type, any size, any bytes of a message.

Each descriptor is refused by an XsemError, or accepted: no other exception, no crash, and the caller's file descriptors
stay unchanged. Accepted objects are used as far as their kind allows, and released.
"""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import hypothesis
import numpy as np  # noqa: F401 - the first dtype loads it, with threads and memory that would look like leaks
from hypothesis import strategies as st

import xsem
from stress import census
from stress.rig import BINARY, MEMORY, TIMELINE, Result, Rig
from xsem import ipc
from xsem.ipc import wire
from xsem.types import (
    MemoryDesc,
    MemoryHandleType,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
)

__all__ = ["run"]

SIZE: Final = 1 << 16
TIMEOUT_S: Final = 60.0
_PASS: Final = 200

_edges = st.sampled_from([2**31, 2**32, 2**63, 2**64 - 1])
_numbers = st.one_of(st.integers(-2, 3), st.integers(-(2**66), 2**66), _edges)
_odd = st.one_of(st.none(), st.booleans(), st.floats(), st.text(max_size=3), st.binary(max_size=17))


def _mostly(good: st.SearchStrategy[Any], bad: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Draw a good value three times of four: a descriptor with only wrong values fails its first check."""
    return st.sampled_from([good, good, good, bad]).flatmap(lambda chosen: chosen)


class _Handles:
    """Objects to pass as a handle, by name. Open descriptors stay open until the end."""

    def __init__(self, rig: Rig, stack: ExitStack) -> None:
        def opened(fd: int) -> int:
            stack.callback(os.close, fd)
            return fd

        def exported(thing: xsem.Semaphore | xsem.Memory) -> int:
            desc: SemaphoreDesc | MemoryDesc = thing.export(for_device=rig.device)
            stack.callback(desc.close)
            handle = desc.handle
            assert handle is not None
            return handle if isinstance(handle, int) else handle.fileno()

        self.timeline = exported(rig.exporter.create_semaphore(TIMELINE))
        self.binary = exported(rig.exporter.create_semaphore(BINARY))
        self.memory = exported(rig.exporter.create_memory(MEMORY, SIZE))
        reading, writing = os.pipe()
        ours, theirs = socket.socketpair()
        stack.callback(ours.close)
        stack.callback(theirs.close)
        closed = OwnedHandle(os.dup(self.memory))
        closed.close()
        file = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - the stack closes it
        gone = os.dup(self.memory)
        os.close(gone)
        self.fds = [self.timeline, self.binary, self.memory, opened(os.memfd_create("stress")), opened(os.eventfd(0)),
                    opened(reading), opened(writing), opened(os.open(os.devnull, os.O_RDWR)),
                    opened(os.open("/", os.O_RDONLY)), ours.fileno()]
        self.all: list[Any] = [*self.fds, -1, gone, closed, file, ours]
        self._seen = self._look()

    def _look(self) -> list[tuple[int, int]]:
        return [(each.st_dev, each.st_ino) for each in map(os.fstat, self.fds)]

    def check(self) -> None:
        """Check that the caller's descriptors are open and refer to the same files."""
        if self._look() != self._seen:
            raise AssertionError(f"file descriptors were touched: {self._seen} before, {self._look()} now")


class _Fuzzer:
    def __init__(self, rig: Rig, result: Result, stack: ExitStack) -> None:
        self.rig = rig
        self.result = result
        self.handles = _Handles(rig, stack)
        self.commands = rig.device.create_command_list()
        uuid = rig.device.info.uuid
        self.any_uuid = _mostly(st.sampled_from([uuid, None]), st.one_of(st.uuids(), _odd))
        self.any_handle = st.one_of(st.sampled_from(self.handles.all), _numbers, _odd)

    def attempt(self, what: str, call: Callable[[], object]) -> None:
        """Make the call. Both an XsemError and success are good results."""
        try:
            call()
        except xsem.XsemError as error:
            self.result.count(f"{what} refused")
            self.result.count(f"reason {error.reason}")
        else:
            self.result.count(f"{what} taken")
        self.handles.check()

    def semaphore(self, fields: dict[str, Any], signal: dict[str, Any]) -> None:
        with self.rig.device.import_semaphore(SemaphoreDesc(**fields)) as sem:
            # The driver accepts any semaphore as any kind; a signal of the wrong kind would be our error.
            if sem.type is TIMELINE and fields["handle"] == self.handles.timeline:
                self.commands.append_signal(sem, SignalParams(**signal))

    def memory(self, fields: dict[str, Any], mapping: dict[str, Any]) -> None:
        with self.rig.device.import_memory(MemoryDesc(**fields)) as memory, memory.map_buffer(**mapping) as buffer:
            # The driver accepts any size, so the test does not touch memory beyond the allocation.
            if fields["handle"] == self.handles.memory and memory.allocation_size <= SIZE:
                self.commands.append_fill(buffer, b"\x05")

    def message(self, data: bytes, fds: list[int]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                socket.send_fds(theirs, [data], fds)
            with ipc.receive(ours, timeout_s=TIMEOUT_S) as message:
                descs: list[SemaphoreDesc | MemoryDesc] = [*message.semaphores, *message.memories]
                for desc in descs:
                    self.attempt("imports of a mutated message", partial(self.taken, desc))

    def taken(self, desc: SemaphoreDesc | MemoryDesc) -> None:
        device = self.rig.device
        thing: xsem.Semaphore | xsem.Memory
        thing = device.import_semaphore(desc) if isinstance(desc, SemaphoreDesc) else device.import_memory(desc)
        thing.release()

    def good_message(self) -> bytes:
        uuid = self.rig.device.info.uuid
        descs: list[SemaphoreDesc | MemoryDesc] = [
            SemaphoreDesc.timeline_fd(self.handles.timeline, device_uuid=uuid),
            SemaphoreDesc.opaque_fd(self.handles.binary, device_uuid=uuid),
            MemoryDesc.opaque_fd(self.handles.memory, allocation_size=SIZE, device_uuid=uuid),
        ]
        return wire.encode(descs, [True, True, True], b"payload")

    # ---- strategies
    def semaphore_fields(self) -> st.SearchStrategy[dict[str, Any]]:
        any_type = st.one_of(st.sampled_from(list(SemaphoreHandleType)), _odd)
        types = _mostly(st.sampled_from([TIMELINE, BINARY]), any_type)
        handles = _mostly(st.sampled_from([self.handles.timeline, self.handles.binary]), self.any_handle)
        return st.fixed_dictionaries(
            {"type": types, "handle": handles, "name": _mostly(st.none(), _odd), "device_uuid": self.any_uuid,
             "driver_uuid": _mostly(st.none(), self.any_uuid)})

    def memory_fields(self) -> st.SearchStrategy[dict[str, Any]]:
        types = _mostly(st.just(MEMORY), st.one_of(st.sampled_from(list(MemoryHandleType)), _odd))
        handles = _mostly(st.just(self.handles.memory), self.any_handle)
        return st.fixed_dictionaries(
            {"type": types, "handle": handles, "allocation_size": _mostly(st.just(SIZE), st.one_of(_numbers, _odd)),
             "name": _mostly(st.none(), _odd), "dedicated": _mostly(st.booleans(), _odd),
             "device_uuid": self.any_uuid, "driver_uuid": _mostly(st.none(), self.any_uuid)})


_signals = st.fixed_dictionaries(
    {"value": _mostly(st.integers(0, 2**64 - 1), st.one_of(_numbers, _odd)), "key": _mostly(st.none(), _numbers),
     "nvscisync_fence": _mostly(st.none(), _numbers), "skip_nvscibuf_memsync": _mostly(st.just(False), _odd),
     "allow_rewind": _mostly(st.booleans(), _odd)})
_extents = st.one_of(st.integers(0, SIZE), _numbers, _odd)
_mappings = st.fixed_dictionaries({}, optional={
    "offset": _extents, "size": _extents, "shape": st.one_of(st.lists(st.integers(0, 64), max_size=3), _odd),
    "dtype": st.one_of(st.sampled_from(["uint8", "float32", "complex128", "O", "V3"]), _odd),
    "strides": st.one_of(st.lists(_extents, max_size=3), _odd), "overlap": _odd})


def run(rig: Rig, examples: int) -> Result:
    """Run this many examples of each kind, after a warm-up."""
    result = Result()
    with ExitStack() as stack:
        fuzzer = _Fuzzer(rig, result, stack)
        good = fuzzer.good_message()
        fds = [fuzzer.handles.timeline, fuzzer.handles.binary, fuzzer.handles.memory]
        flips = st.lists(st.tuples(st.sampled_from(range(len(good))), st.integers(0, 255)), min_size=1, max_size=4)
        carried = st.one_of(st.just(fds), st.just(fds), st.lists(st.sampled_from(fuzzer.handles.fds), max_size=5))

        def semaphores(fields: dict[str, Any], signal: dict[str, Any]) -> None:
            fuzzer.attempt("semaphores", lambda: fuzzer.semaphore(fields, signal))

        def memories(fields: dict[str, Any], mapping: dict[str, Any]) -> None:
            fuzzer.attempt("memories", lambda: fuzzer.memory(fields, mapping))

        def messages(flips: list[tuple[int, int]], fds: list[int]) -> None:
            data = bytearray(good)
            for at, byte in flips:
                data[at] = byte
            fuzzer.attempt("messages", lambda: fuzzer.message(bytes(data), fds))

        def passes(count: int, seed: int) -> None:
            settings = hypothesis.settings(max_examples=count, deadline=None, database=None,
                                           phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
                                           suppress_health_check=list(hypothesis.HealthCheck))
            tests: list[tuple[Callable[..., None], tuple[Any, Any]]] = [
                (semaphores, (fuzzer.semaphore_fields(), _signals)), (memories, (fuzzer.memory_fields(), _mappings)),
                (messages, (flips, carried)),
            ]
            for test, draws in tests:
                seeded: Callable[[Any], Callable[[], None]] = hypothesis.seed(seed)
                seeded(settings(hypothesis.given(*draws)(test)))()
                fuzzer.commands.synchronize(timeout_s=TIMEOUT_S)

        # In passes, because Hypothesis keeps everything that it draws in one test. The warm-up is as long as a pass.
        first = min(examples, _PASS)
        passes(first, rig.seed)
        result.counts.clear()
        before = census.take()
        samples: list[int] = []
        for begin in range(0, examples, _PASS):
            passes(min(_PASS, examples - begin), rig.seed + 1 + begin)
            samples.append(census.rss())
        growth = census.Growth(before, census.take())
        result.more = {"rss_samples": samples, "growth": growth.as_json()}
        result.failures += growth.complaints()
        if not result.counts.get("semaphores taken") or not result.counts.get("memories taken"):
            result.failures.append("no descriptor was taken: the fuzzing does not reach the driver")
    return result
