"""Test an application's own instance, device and queue on SwiftShader: how xsem uses them and leaves them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.vulkan_sim import BINARY, MEMORY, driver_of, list_of, use_swiftshader

import xsem
from xsem.errors import BadArgumentError, UnsupportedError, WrongDeviceError
from xsem.types import Feature
from xsem_vulkan import Native

SIZE = 4096
BOTH = ("VK_KHR_external_semaphore_fd", "VK_KHR_external_memory_fd")


class Application:
    """An application that opens Vulkan itself, with a lock for its queue."""

    def __init__(self) -> None:
        from xsem_vulkan.answers import ask
        from xsem_vulkan.gpu import open_gpu
        from xsem_vulkan.instance import Instance

        self.instance = Instance()
        self.physical = self.instance.physical_devices()[0]
        self.gpu = open_gpu(self.physical, ask(self.physical))
        self.lock = threading.Lock()   # as in applications: not re-entrant
        address = self.gpu.library.address
        self.native = Native(
            instance=address(self.instance.handle), physical_device=address(self.physical.handle),
            device=address(self.gpu.handle), family=self.gpu.family, queues=[self.gpu.queues[0].address],
            lock=self.lock, extensions=BOTH, timeline_semaphore=True)

    def works(self) -> bool:
        """Return whether device and queue are still usable."""
        from xsem_vulkan.commands import Commands
        from xsem_vulkan.semaphores import Timeline
        from xsem_vulkan.submission import Submission

        timeline = Timeline(self.gpu)
        commands = Commands(self.gpu)
        timeline.appended = 1
        with self.lock:
            Submission(self.gpu).submit(self.gpu.queues[0], [], commands.barrier, [(timeline.handle, 1)])
        done = timeline.wait(1, 20 * 10**9)
        commands.close()
        timeline.drop()
        return done


@pytest.fixture
def application(monkeypatch: pytest.MonkeyPatch) -> Iterator[Application]:
    use_swiftshader(monkeypatch)
    made = Application()
    yield made
    assert made.works()
    made.gpu.close()


@contextmanager
def native_device(application: Application, **other: Any) -> Iterator[xsem.Device]:
    with xsem.open_device("vulkan", native=replace(application.native, **other)) as device:
        yield device


def test_device_is_the_applications_and_is_left_to_it(application: Application) -> None:
    [listed] = xsem.devices("vulkan")
    for _ in range(3):
        with native_device(application) as device:
            assert device.info == listed
            assert device.native_handle == application.native.device
            assert Feature.NATIVE_CONTEXT in device.capabilities.features
            commands = device.create_command_list()
            assert commands.native_handle == application.native.queues[0]
            commands.synchronize(timeout_s=20)
        assert application.works()


def test_objects_go_between_the_applications_device_and_another(application: Application) -> None:
    with native_device(application) as device, xsem.open_device("vulkan:0") as other:
        drawn, memory = device.create_semaphore(BINARY), device.create_memory(MEMORY, SIZE)
        with drawn.export() as semaphore, memory.export() as shared:
            theirs, copy = other.import_semaphore(semaphore), other.import_memory(shared)
        with other.create_semaphore(BINARY).export() as back:
            device.import_semaphore(back)
        commands, reads = device.create_command_list(), other.create_command_list()
        commands.append_fill(memory.map_buffer(), b"\7")
        commands.append_signal(drawn, release=[memory])
        reads.append_wait(theirs, acquire=[copy])
        host = other.host_buffer(SIZE)
        reads.append_copy(host, copy.map_buffer())
        reads.synchronize(timeout_s=20)
        assert np.array_equal(host.numpy(), np.full(SIZE, 7, np.uint8))


@pytest.mark.parametrize("own", [True, False])
def test_only_the_applications_thread_submits_when_there_is_no_lock(application: Application, own: bool) -> None:
    threads: set[int] = set()
    with native_device(application, lock=None) as device:
        gpu = driver_of(device)._gpu
        real = gpu.vk.vkQueueSubmit

        def submit(*arguments: Any) -> Any:
            threads.add(threading.get_ident())
            return real(*arguments)

        gpu.vk.vkQueueSubmit = submit
        commands = device.create_command_list() if own else device.command_list(application.native.queues[0])
        for each in (used := [device.create_semaphore(BINARY) for _ in range(8)]):
            commands.append_signal(each)

        def release() -> None:
            for each in used:
                each.release()
                device.pending()

        other = threading.Thread(target=release)
        other.start()
        other.join()
        deadline = time.monotonic() + 0.1   # for xsem's own threads
        while time.monotonic() < deadline:
            assert application.works()
        assert threads == {threading.get_ident()}
        deadline = time.monotonic() + 20
        while device.releasing():
            commands.query()   # a call of the application appends the markers
            assert time.monotonic() < deadline
        assert threads == {threading.get_ident()}


def test_queue_is_used_only_under_the_applications_lock(application: Application) -> None:
    held: list[bool] = []
    with native_device(application) as device:
        gpu = driver_of(device)._gpu
        real = gpu.vk.vkQueueSubmit

        def submit(*arguments: Any) -> Any:
            held.append(application.lock.locked())
            return real(*arguments)

        gpu.vk.vkQueueSubmit = submit
        first, second = device.create_command_list(), device.create_command_list()
        buffer = device.create_memory(MEMORY, SIZE).map_buffer()
        for commands in (first, second):
            commands.append_fill(buffer, b"\1")
            # Work of the application already has the lock, and may append: xsem takes the lock once.
            commands.append_work(commands.append_barrier)
            commands.synchronize(timeout_s=20)
        assert not application.lock.locked()
        assert len(held) >= 4
        assert all(held)


def test_append_waits_for_the_lock_of_the_application(application: Application) -> None:
    with native_device(application) as device:
        commands = device.create_command_list()
        appended = threading.Event()

        def append() -> None:
            commands.append_barrier()
            appended.set()

        thread = threading.Thread(target=append)
        with application.lock:
            thread.start()
            assert not appended.wait(0.1)
        assert appended.wait(20)
        thread.join()


def test_lock_that_fails_leaves_the_list_usable(application: Application) -> None:
    class Odd:
        broken = True

        def __enter__(self) -> None:
            if self.broken:
                raise RuntimeError("no lock today")

        def __exit__(self, *exception: object) -> None:
            pass

    lock: Any = Odd()
    with native_device(application, lock=lock) as device:
        commands = device.create_command_list()
        with pytest.raises(RuntimeError, match="no lock"):
            commands.append_barrier()
        lock.broken = False
        thread = threading.Thread(target=commands.append_barrier, daemon=True)   # the failed append left nothing locked
        thread.start()
        thread.join(20)
        assert not thread.is_alive()
        commands.synchronize(timeout_s=20)


def test_applications_queue_is_borrowed_as_a_list(application: Application) -> None:
    queue = application.native.queues[0]
    with native_device(application) as device:
        commands = device.command_list(queue)
        again = device.command_list(queue)
        assert commands.native_handle == again.native_handle == queue
        buffer = device.create_memory(MEMORY, SIZE).map_buffer()
        commands.append_fill(buffer, b"\5")
        again.append_fill(buffer, b"\6")
        again.synchronize(timeout_s=20)
        assert (buffer.copy_to_host() == 6).all()
        commands.release()
        again.append_barrier()
        again.synchronize(timeout_s=20)
        with pytest.raises(WrongDeviceError) as wrong:
            device.command_list(queue + 8)
        assert (wrong.value.expected, wrong.value.actual) == (device.info.id, "another device's queue")
        with pytest.raises(BadArgumentError) as raised:
            driver_of(device).borrow_queue(0, True)
        assert raised.value.reason == "null_stream"
        with pytest.raises(BadArgumentError) as raised:
            device.command_list(object())   # type: ignore[arg-type]
        assert raised.value.reason == "not_a_stream"


def test_list_of_its_own_and_borrowed_queue_share_the_vkqueue(application: Application) -> None:
    queue = application.native.queues[0]
    with native_device(application) as device:
        borrowed, own = device.command_list(queue), device.create_command_list()
        assert borrowed.native_handle == own.native_handle == queue
        assert list_of(borrowed).identity != list_of(own).identity
        buffer = device.create_memory(MEMORY, SIZE).map_buffer()
        borrowed.append_fill(buffer, b"\1")
        own.append_fill(buffer, b"\2")
        own.synchronize(timeout_s=20)
        assert (buffer.copy_to_host() == 2).all()


@pytest.mark.parametrize(("extensions", "semaphores", "memories"), [
    ((), set(), set()), (BOTH[:1], {BINARY}, set()), (BOTH[1:], set(), {MEMORY}), (BOTH, {BINARY}, {MEMORY}),
])
def test_types_of_a_disabled_extension_are_not_declared(
    application: Application, extensions: tuple[str, ...], semaphores: set[Any], memories: set[Any]
) -> None:
    with native_device(application, extensions=extensions) as device:
        declared = device.capabilities
        assert declared.semaphore_import == declared.semaphore_export == semaphores | declared.bridged
        assert declared.memory_import == declared.memory_export == memories
        assert declared.independent_lists == 1


def test_device_without_timelines_enabled_is_refused(application: Application) -> None:
    with pytest.raises(UnsupportedError) as raised, native_device(application, timeline_semaphore=False):
        pass
    assert (raised.value.reason, raised.value.capability) == ("not_enabled", "timelineSemaphore")


@pytest.mark.parametrize("wrong", [
    {"physical_device": 8}, {"family": 7}, {"queues": []}, {"queues": [8, 8]}, {"queues": [8, 16]}, {"queues": 8},
    {"queues": "8"}, {"device": 0}, {"instance": True}, {"device": 2**64}, {"family": -1}, {"family": 0.0},
    {"lock": 1}, {"extensions": "VK_KHR_external_memory_fd"}, {"extensions": [1]},
])
def test_invalid_native_is_refused_before_any_call(
    application: Application, wrong: dict[str, Any]
) -> None:
    with pytest.raises(BadArgumentError) as raised, native_device(application, **wrong):
        pass
    assert raised.value.reason == "bad_native"


@pytest.mark.parametrize("native", [1, object(), "device"])
def test_something_else_is_refused_and_named(monkeypatch: pytest.MonkeyPatch, native: object) -> None:
    use_swiftshader(monkeypatch)
    with pytest.raises(BadArgumentError, match="Native") as raised:
        xsem.open_device("vulkan", native=native)
    assert raised.value.reason == "bad_native"


def test_device_is_opened_by_its_uuid_too(application: Application) -> None:
    [listed] = xsem.devices("vulkan")
    with xsem.open_device("vulkan", native=application.native, uuid=listed.uuid) as device:
        assert device.info.uuid == listed.uuid
    with pytest.raises(xsem.DeviceNotFoundError):
        xsem.open_device("vulkan", native=application.native, uuid=bytes(range(16)))
