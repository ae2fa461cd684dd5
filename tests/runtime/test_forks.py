"""In a forked child every object of the parent is refused, nothing crashes, and no driver is called."""

from __future__ import annotations

import gc
import multiprocessing
import os
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from support.fake_backend import ALL, INFO, FakeDriver, FakeList, FakeStream
from support.forked import CHILD_S, in_child
from support.waiting import until

import xsem
import xsem.plugins
from xsem import spi
from xsem.data import file_descriptors
from xsem.errors import ForkedError
from xsem.facade.device import Device
from xsem.runtime.forks import check_generation, generation
from xsem.types import Feature, MemoryHandleType, MipmapDesc, OwnedHandle, SemaphoreDesc, SemaphoreHandleType

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="os.fork() is missing"),
    # Python >= 3.12 warns about fork in a process with threads.
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]
M = MemoryHandleType


class AllAppends(FakeList, spi.RecordingQueue, spi.ImageCopyQueue, spi.CudaStreamQueue):
    """A queue with all abilities. It notes the calls of recordings and of image levels."""

    def _note(self, name: str) -> None:
        assert isinstance(self.driver, Watched)
        self.driver.noted.append(name)

    def cuda_stream(self) -> tuple[int, int]:
        self._note("cuda_stream")
        return 2, 0

    def begin_recording(self) -> None:
        self._note("begin_recording")

    def end_recording(self) -> str:
        return "recording"

    def replay(self, recording: object, values: object) -> None:
        self._note("replay")

    def release_recording(self, recording: object) -> None:
        self._note("release_recording")

    def append_region_copy(self, *copy: Any) -> None:
        self._note("append_region_copy")

    def append_image_copy(self, *copy: Any) -> None:
        self._note("append_image_copy")


class Watched(FakeDriver, spi.Images, spi.HostMemory):
    """Records the name of every call."""

    def __init__(self) -> None:
        super().__init__(
            xsem.Capabilities(**{
                **{field: getattr(ALL, field) for field in ALL.__dataclass_fields__},
                "features": frozenset(Feature) - {Feature.MEMORY_CHUNKS},
            })
        )
        self.noted: list[str] = []
        self.everything_is_done = True

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if isinstance(found, types.MethodType) and not name.startswith("_"):
            object.__getattribute__(self, "noted").append(name)
        return found

    def create_queue(self) -> Any:
        self._own("create_queue")
        self.lists.append(AllAppends(self, 0x1000 + len(self.lists)))
        return self.lists[-1]

    def borrow_queue(self, stream: Any, in_order: bool) -> Any:
        self.lists.append(AllAppends(self, stream.handle))
        return self.lists[-1]

    def map_mipmapped_array(self, memory: int, desc: MipmapDesc) -> int:
        return next(self.numbers)

    def mipmap_level(self, array: int, level: int) -> int:
        return next(self.numbers)

    def release_array(self, array: int) -> None: ...

    def host_buffer(self, size: int) -> tuple[int, int]:
        return next(self.numbers), 0x1000

    def release_host_buffer(self, buffer: int) -> None: ...


class AllKinds:
    """One object of each public class."""

    def __init__(self, driver: FakeDriver) -> None:
        self.driver = driver
        self.device = Device(INFO, driver)
        self.semaphore = self.device.create_semaphore(SemaphoreHandleType.TIMELINE_SEMAPHORE_FD, label="frames")
        self.memory = self.device.create_memory(M.OPAQUE_FD, 1 << 16)
        self.buffer = self.memory.map_buffer()
        self.array = self.memory.map_mipmapped_array(
            MipmapDesc(extent=(4, 4, 0), format="uint8", channels=1), overlap=True)
        self.level = self.array.level(0)
        self.commands = self.device.create_command_list()
        self.borrowed = self.device.command_list(FakeStream(0x77))
        self.event = self.device.create_event()
        self.commands.append_signal(self.semaphore, 1, signal_event=self.event)
        with self.commands.record() as self.recording:
            self.commands.append_signal(self.semaphore, 2)


@pytest.fixture
def all_kinds() -> Iterator[AllKinds]:
    made = AllKinds(Watched())
    yield made
    made.driver.finish()
    made.device.release()
    until(lambda: ("close",) in made.driver.log)
    assert not made.driver.misuse


# (Object, name): the call. A test below fails if a method has no row.
CALLS: dict[tuple[str, str], Callable[[Any], object]] = {
    ("device", "import_semaphore"): lambda x: x.import_semaphore(SemaphoreDesc.sync_fd(-1)),
    ("device", "import_memory"): lambda x: x.import_memory(xsem.MemoryDesc.nvscibuf(16, allocation_size=1)),
    ("device", "nvscisync_attributes"): lambda x: x.nvscisync_attributes(16, signal=True),
    ("device", "create_semaphore"): lambda x: x.create_semaphore(SemaphoreHandleType.OPAQUE_FD),
    ("device", "create_timeline"): lambda x: x.create_timeline(),
    ("device", "create_binary"): lambda x: x.create_binary(),
    ("device", "create_memory"): lambda x: x.create_memory(M.OPAQUE_FD, 1),
    ("device", "share"): lambda x: x.share(1, size=1),
    ("device", "companion_exporter"): lambda x: x.companion_exporter(),
    ("device", "host_buffer"): lambda x: x.host_buffer(1),
    ("device", "create_command_list"): lambda x: x.create_command_list(),
    ("device", "command_list"): lambda x: x.command_list(FakeStream(0x88)),
    ("device", "create_event"): lambda x: x.create_event(),
    ("device", "event"): lambda x: x.event(object()),
    ("device", "pending"): lambda x: x.pending(),
    ("device", "releasing"): lambda x: x.releasing(),
    ("device", "watch"): lambda x: x.watch(after_s=1),
    ("semaphore", "export"): lambda x: x.export(),
    ("semaphore", "abandon"): lambda x: x.abandon(),
    ("semaphore", "mark_reset"): lambda x: x.mark_reset(),
    ("semaphore", "signalled_by"): lambda x: x.signalled_by(),
    ("semaphore", "value"): lambda x: x.value(),
    ("semaphore", "host_signal"): lambda x: x.host_signal(9),
    ("semaphore", "host_wait"): lambda x: x.host_wait(1, timeout_s=0),
    ("semaphore", "wait"): lambda x: x.wait(1, stream=FakeStream(0x88)),
    ("semaphore", "signal"): lambda x: x.signal(9, stream=FakeStream(0x88)),
    ("semaphore", "reached"): lambda x: x.reached(1).send(None),
    ("memory", "export"): lambda x: x.export(),
    ("memory", "map_buffer"): lambda x: x.map_buffer(),
    ("memory", "map_mipmapped_array"): lambda x: x.map_mipmapped_array(
        MipmapDesc(extent=(4, 4, 0), format="uint8", channels=1)),
    ("buffer", "view"): lambda x: x.view((1,), "uint8"),
    ("buffer", "numpy"): lambda x: x.numpy(),
    ("buffer", "__buffer__"): lambda x: x.__buffer__(0),
    ("buffer", "copy_to_host"): lambda x: x.copy_to_host(),
    ("buffer", "copy_from_host"): lambda x: x.copy_from_host(np.zeros(1 << 16, np.uint8)),
    ("buffer", "__dlpack__"): lambda x: x.__dlpack__(),
    ("buffer", "__dlpack_device__"): lambda x: x.__dlpack_device__(),
    ("buffer", "__cuda_array_interface__"): lambda x: x.__cuda_array_interface__,
    ("array", "level"): lambda x: x.level(0),
    ("level", "native_handle"): lambda x: x.native_handle,
    ("level", "read"): lambda x: x.read(),
    ("level", "write"): lambda x: x.write(np.zeros((4, 4, 1), np.uint8)),
    ("commands", "append_wait"): lambda x: x.append_wait([], []),
    ("commands", "append_signal"): lambda x: x.append_signal([], []),
    ("commands", "append_work"): lambda x: x.append_work(print),
    ("commands", "append_barrier"): lambda x: x.append_barrier(),
    ("commands", "append_copy"): lambda x: x.append_copy(None, None),
    ("commands", "append_fill"): lambda x: x.append_fill(None, b"\0"),
    ("commands", "query"): lambda x: x.query(),
    ("commands", "synchronize"): lambda x: x.synchronize(timeout_s=0),
    ("commands", "record"): lambda x: x.record(),
    ("commands", "__cuda_stream__"): lambda x: x.__cuda_stream__(),
    ("commands", "as_current"): lambda x: x.as_current(),
    ("event", "query"): lambda x: x.query(),
    ("event", "wait"): lambda x: x.wait(timeout_s=0),
    ("event", "reset"): lambda x: x.reset(),
    ("event", "add_done_callback"): lambda x: x.add_done_callback(print),
    ("event", "__await__"): lambda x: next(x.__await__()),
    ("recording", "replay"): lambda x: x.replay(),
}
for _name in ("device", "semaphore", "memory", "buffer", "array", "commands", "event", "recording"):
    CALLS[_name, "__enter__"] = lambda x: x.__enter__()
    CALLS[_name, "native_handle"] = lambda x: x.native_handle
CALLS.update({("borrowed", name): call for (owner, name), call in CALLS.items() if owner == "commands"})
HARMLESS = {"release", "released", "address", "__exit__", "__array_interface__",
            "device", "type", "kind", "label"}   # attributes; the class of a compiled object lists them, too
SPECIAL = {"__enter__", "__exit__", "__await__", "__dlpack__", "__dlpack_device__", "__cuda_array_interface__",
           "__array_interface__", "__buffer__", "__call__", "__cuda_stream__"}


def test_every_public_method_is_in_the_table(all_kinds: AllKinds) -> None:
    for owner in {owner for owner, _ in CALLS}:
        kind = type(getattr(all_kinds, owner))
        names = {name for name in dir(kind) if not name.startswith("_") or name in SPECIAL}
        rows = {name for each, name in CALLS if each == owner}
        assert names - HARMLESS == rows, owner


def test_in_the_child_every_method_raises_and_calls_no_driver(all_kinds: AllKinds) -> None:
    def child() -> tuple[dict[tuple[str, str], str], list[str], int]:
        driver = all_kinds.driver
        assert isinstance(driver, Watched)
        driver.noted.clear()
        outcomes = {}
        for (owner, name), call in CALLS.items():
            try:
                call(getattr(all_kinds, owner))
                outcomes[owner, name] = "nothing was raised"
            except ForkedError as error:
                outcomes[owner, name] = error.reason
            except Exception as error:
                outcomes[owner, name] = repr(error)
        return outcomes, driver.noted, len(driver.log)

    before = len(all_kinds.driver.log)
    outcomes, noted, log = in_child(child)
    assert {key: outcome for key, outcome in outcomes.items() if outcome != "forked"} == {}
    assert noted == []
    assert log == before


def test_in_the_child_release_is_harmless(all_kinds: AllKinds) -> None:
    def child() -> tuple[list[bool], list[str]]:
        driver = all_kinds.driver
        assert isinstance(driver, Watched)
        driver.noted.clear()
        resources: list[Any] = [
            all_kinds.recording, all_kinds.event, all_kinds.array, all_kinds.buffer, all_kinds.memory,
            all_kinds.semaphore, all_kinds.borrowed, all_kinds.commands, all_kinds.device,
        ]
        for each in resources:
            each.release()
            each.release()
            each.__exit__(None, None, None)
        released = [each.released for each in resources]
        # The finalizers are harmless, too.
        resources.clear()
        for name in list(vars(all_kinds)):
            if name != "driver":
                delattr(all_kinds, name)
        gc.collect()
        return released, driver.noted

    released, noted = in_child(child)
    assert released == [False] * 9
    assert noted == []
    # The parent's objects still work.
    assert not all_kinds.device.released
    all_kinds.commands.append_signal(all_kinds.semaphore, 7)
    all_kinds.commands.synchronize()
    all_kinds.buffer.release()
    until(lambda: all_kinds.driver.released("unmap_buffer"))
    assert len(all_kinds.driver.released("unmap_buffer")) == 1


def test_recording_ends_without_a_driver_call_in_the_child(all_kinds: AllKinds) -> None:
    driver = all_kinds.driver
    assert isinstance(driver, Watched)

    def child() -> tuple[str, list[str]]:
        ended: list[str] = []
        driver.noted.clear()
        vars(all_kinds.commands._queue.driver)["end_recording"] = lambda: ended.append("end_recording")
        try:
            recording.__exit__(None, None, None)
            outcome = "nothing was raised"
        except ForkedError as error:
            outcome = error.reason
        return outcome, driver.noted + ended

    with all_kinds.commands.record() as recording:
        outcome, noted = in_child(child)
    assert (noted, outcome) in (([], "forked"), ([], "nothing was raised"))


def test_the_error_names_the_device_and_spawn(all_kinds: AllKinds) -> None:
    name, text = in_child(lambda: all_kinds.device.pending())[1:]
    assert name == "ForkedError"
    assert "fake:0" in text
    assert "spawn" in text


def test_generations_count_forks() -> None:
    mine = generation()
    check_generation(mine, "it")
    child, grandchild = in_child(lambda: (generation(), in_child(generation)))
    assert (child, grandchild) == (mine + 1, mine + 2)
    assert generation() == mine
    for other in (mine - 1, mine + 1):
        with pytest.raises(ForkedError) as caught:
            check_generation(other, "it")
        assert caught.value.reason == "forked"


def open_and_use() -> list[object]:
    """Open a new device, and use it from end to end."""
    with xsem.open_device("host") as device:
        number = os.eventfd(0)
        semaphore = device.import_semaphore(SemaphoreDesc.opaque_fd(number, device_uuid=None))
        os.close(number)
        commands = device.create_command_list()
        commands.append_signal(semaphore)
        commands.append_wait(semaphore)
        commands.synchronize(timeout_s=20)
        buffer = device.create_memory(M.OPAQUE_FD, 64).map_buffer(shape=(4,))
        commands.append_fill(buffer, b"\3")
        commands.synchronize(timeout_s=20)
        return [commands.query(), buffer.copy_to_host().tolist()]


@pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")
def test_new_device_of_the_child_is_refused_in_a_grandchild() -> None:
    with xsem.open_device("host") as parents:
        def child() -> list[object]:
            results = open_and_use()
            mine = xsem.open_device("host")
            results.append(in_child(lambda: mine.pending())[1])
            results.append(in_child(lambda: parents.pending())[1])
            mine.pending()
            return results

        assert in_child(child) == [True, [3, 3, 3, 3], "ForkedError", "ForkedError"]
        parents.pending()


@pytest.mark.skipif(sys.platform != "linux", reason="the host device needs Linux")
@pytest.mark.parametrize("lock", ["plugins", "fds"])
def test_lock_held_by_another_thread_does_not_stop_the_child(lock: str) -> None:
    held, go_on = threading.Event(), threading.Event()
    holder: Any = xsem.plugins._lock if lock == "plugins" else file_descriptors._Numbers.lock

    def hold() -> None:
        with holder:
            held.set()
            go_on.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    try:
        assert in_child(open_and_use) == [True, [3, 3, 3, 3]]
    finally:
        go_on.set()
        thread.join()


def test_child_loads_plugins_when_a_fork_interrupts_loading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xsem.plugins, "_registry", None)
    xsem.plugins.registry()._loading = True
    assert "host" in in_child(lambda: [info.name for info in xsem.backends()])


def test_locks_of_an_open_device_do_not_stop_the_child(all_kinds: AllKinds) -> None:
    device_state, queue = all_kinds.device._device_state, all_kinds.commands._queue

    def child() -> list[str]:
        all_kinds.semaphore.release()
        all_kinds.device.release()
        try:
            all_kinds.commands.append_barrier()
        except ForkedError as error:
            return [error.reason, repr(all_kinds.semaphore.released)]
        return []

    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with device_state.releaser.lock, all_kinds.device._queues.lock, queue.lock, all_kinds.device._queues.copy_lock:
            held.set()
            go_on.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    try:
        assert in_child(child) == ["forked", "False"]
    finally:
        go_on.set()
        thread.join()


def test_child_has_its_own_copy_of_a_parents_handle() -> None:
    with OwnedHandle(os.eventfd(0)) as handle:
        number = handle.fileno()

        def child() -> bool:
            handle.close()
            return handle.closed

        assert in_child(child) is True
        assert not handle.closed
        os.fstat(number)


def child_of_multiprocessing(device: Device, results: Any) -> None:
    try:
        device.pending()
        results.put("nothing was raised")
    except ForkedError as error:
        results.put(error.reason)


def test_fork_of_multiprocessing_is_detected(all_kinds: AllKinds) -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    process = context.Process(target=child_of_multiprocessing, args=(all_kinds.device, results))
    process.start()
    process.join(CHILD_S)
    assert process.exitcode == 0
    assert results.get() == "forked"
    results.close()
    process.close()


SCRIPT = """
import gc, os, sys, threading
import xsem
from support import fake_backend
from support.fake_backend import ALL, INFO, FakeDriver, FakeList, binary, timeline
from support.waiting import until
from xsem.facade.device import Device
from xsem.types import MemoryHandleType

parent = os.getpid()

class Telling(FakeDriver):
    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if callable(found) and not name.startswith("_") and os.getpid() != parent:
            os.write(2, f"{name} in the child\\n".encode())
        return found

driver = Telling()
device = Device(INFO, driver)
semaphore, other = timeline(device), binary(device)
buffer = device.create_memory(MemoryHandleType.OPAQUE_FD, 4096).map_buffer()
capsule = buffer.__dlpack__()
commands = device.create_command_list()
event = device.create_event()
commands.append_wait(semaphore, 1, signal_event=event)
told = threading.Event()
event.add_done_callback(lambda _: told.set())   # on a thread of xsem
commands.append_signal(other)
other.release()          # pending: the releasing thread is at work
device.watch(after_s=0.01, report=lambda pending: None)
pid = os.fork()
if pid == 0:
    del semaphore, buffer, capsule, commands, event
    gc.collect()
    # The rest goes as the interpreter does: an ordinary end, with all finalizers and exit functions.
    sys.exit(7)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == 7, status
driver.finish()
commands.synchronize(timeout_s=20)
assert told.wait(20)
del buffer, capsule
device.release()
until(lambda: ("close",) in driver.log)
assert not driver.misuse
print("done")
"""


def test_child_that_exits_normally_calls_no_driver() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", SCRIPT], capture_output=True, text=True, timeout=50,
        check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")
