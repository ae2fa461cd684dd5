"""Semaphores: values, signals and waits of the host, labels, exports, handles."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
import uuid
from collections import deque
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest
from support.at_once import in_threads
from support.fake_backend import ALL, INFO, FakeDriver, binary, fake, timeline
from support.fixtures import Opened, new_handle, refused
from support.numpy_bools import IndexedBool
from support.open_files import numbers
from support.system_types import MEMORY, TIMELINE

import xsem
from xsem.errors import (
    BadArgumentError,
    BusyError,
    DriverError,
    UnsupportedError,
    WaitTimeoutError,
    WrongDeviceError,
)
from xsem.types import (
    Capabilities,
    Feature,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
    SemaphoreKind,
    SignalParams,
)

S = SemaphoreHandleType


def imported(device: xsem.Device) -> xsem.Semaphore:
    with new_handle() as handle:
        return device.import_semaphore(SemaphoreDesc.timeline_fd(handle, device_uuid=None), label="theirs")


# ---- properties
@pytest.mark.parametrize("type", [type for type in S if not type.portable])
def test_semaphore_knows_its_type_kind_and_label(exporting: Opened, type: S) -> None:
    device, _ = exporting
    sem = device.create_semaphore(type, label="frames")
    assert (sem.type, sem.kind, sem.label, sem.device) == (type, type.kind, "frames", device)
    assert repr(sem) == f"<Semaphore {type.value} 'frames' on fake:0>"
    sem.release()
    assert repr(sem).endswith(" released>")


@pytest.mark.parametrize("label", [None, 5, b"frames", ["frames"], np.array([1, 2]), np.array([]), object()],
                         ids=lambda label: type(label).__name__)
def test_bad_label_is_refused_before_the_driver_is_called(exporting: Opened, label: Any) -> None:
    device, driver = exporting
    with new_handle() as handle:
        theirs = SemaphoreDesc.timeline_fd(handle, device_uuid=None)
        before, files = driver.calls, numbers()
        with pytest.raises(BadArgumentError) as caught:
            device.create_semaphore(S.TIMELINE_SEMAPHORE_FD, label=label)
        assert caught.value.reason == "bad_label"
        with pytest.raises(BadArgumentError) as caught:
            device.import_semaphore(theirs, label=label)
        assert caught.value.reason == "bad_label"
        assert (driver.calls, numbers()) == (before, files)


@pytest.mark.parametrize("label", [
    "\x1b[31mred\x1b[0m", "two\nlines", "nul\0", "\u202edetrever", "lone \ud800", "\x9b2J",
], ids=ascii)
def test_control_characters_of_a_label_are_escaped_in_messages(exporting: Opened, label: str) -> None:
    device, driver = exporting
    driver.everything_is_done = False
    sem = device.create_semaphore(S.TIMELINE_SEMAPHORE_FD, label=label)
    assert sem.label == label
    commands = device.create_command_list()
    commands.append_wait(sem, 1)
    with pytest.raises(BadArgumentError) as caught:
        sem.host_signal()
    with pytest.raises(WaitTimeoutError) as late:
        sem.host_wait(5, timeout_s=0)
    shown = [repr(sem), str(caught.value), str(late.value), *(str(op.semaphore) for op in device.pending()),
             *late.value.likely_causes]
    assert all(text.isprintable() for text in shown)
    sem.release()
    assert all(name.isprintable() for name in device.releasing())
    with pytest.raises(xsem.ReleasedError) as gone:
        sem.value()
    assert str(gone.value).isprintable()


def test_native_handle_is_the_drivers(exporting: Opened) -> None:
    device, _ = exporting
    sem = timeline(device)
    assert sem.native_handle == sem._state.token


# ---- creation
def test_timeline_begins_at_its_initial_value(exporting: Opened) -> None:
    device, _ = exporting
    sem = device.create_semaphore(S.TIMELINE_SEMAPHORE_FD, initial_value=10)
    assert sem.value() == 10
    with pytest.raises(BadArgumentError):
        sem.host_signal(10)
    sem.host_signal(11)
    assert sem.value() == 11


@pytest.mark.parametrize(("type", "initial_value", "reason"), [
    (S.OPAQUE_FD, 1, "value_not_allowed"), (S.D3D11_KEYED_MUTEX, 1, "value_not_allowed"),
    (S.TIMELINE_SEMAPHORE_FD, -1, "value_out_of_range"), (S.TIMELINE_SEMAPHORE_FD, 2**64, "value_out_of_range"),
    (S.TIMELINE_SEMAPHORE_FD, True, "not_an_int"), (S.TIMELINE_SEMAPHORE_FD, 1.0, "not_an_int"),
    ("timeline", 0, "bad_type"), (xsem.MemoryHandleType.OPAQUE_FD, 0, "bad_type"),
])
def test_creation_with_bad_arguments_is_refused(
    exporting: Opened, type: Any, initial_value: Any, reason: str
) -> None:
    device, driver = exporting
    before = driver.calls
    with pytest.raises(BadArgumentError) as caught:
        device.create_semaphore(type, initial_value=initial_value)
    assert caught.value.reason == reason
    assert driver.calls == before


def test_everyday_semaphores_have_the_systems_type(exporting: Opened) -> None:
    device, _ = exporting
    frames, other = device.create_timeline(7, label="frames"), device.create_timeline()
    assert (frames.type, frames.value(), frames.label) == (S.TIMELINE_SEMAPHORE_FD, 7, "frames")
    assert other.value() == 0
    binary = device.create_binary(label="done")
    assert (binary.type, binary.label) == (S.OPAQUE_FD, "done")
    assert device.create_semaphore("D3D12_FENCE").type is S.D3D12_FENCE
    assert device.create_semaphore("sync_fd").type is S.SYNC_FD
    assert device.create_memory("DMABUF_FD", 1).type is xsem.MemoryHandleType.DMABUF_FD
    for arguments in ({"initial_value": -1}, {"label": 7}):
        with pytest.raises(BadArgumentError):
            device.create_timeline(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("exported", "timeline", "binary"), [
    ({S.TIMELINE_SEMAPHORE_WIN32, S.OPAQUE_WIN32, S.D3D12_FENCE}, S.TIMELINE_SEMAPHORE_WIN32, S.OPAQUE_WIN32),
    ({S.D3D12_FENCE}, None, None),
])
def test_everyday_semaphores_of_other_systems(exported: Any, timeline: Any, binary: Any) -> None:
    with fake(xsem.Capabilities(semaphore_export=frozenset(exported))) as (device, _):
        creations: list[tuple[Any, Any, str]] = [(device.create_timeline, timeline, "timeline_semaphore_fd"),
                                                 (device.create_binary, binary, "opaque_fd")]
        for create, type, missing in creations:
            if type is not None:
                assert create().type is type
                continue
            with pytest.raises(UnsupportedError) as caught:
                create()
            assert caught.value.capability == f"semaphore.export.{missing}"


def test_types_that_are_not_declared_are_refused() -> None:
    class Nothing(FakeDriver):
        pass

    with fake(Capabilities()) as (device, driver):
        before = driver.calls
        with pytest.raises(UnsupportedError) as caught:
            timeline(device)
        assert caught.value.capability == "semaphore.export.timeline_semaphore_fd"
        with pytest.raises(UnsupportedError) as caught:
            imported(device)
        assert caught.value.capability == "semaphore.import.timeline_semaphore_fd"
        assert driver.calls == before


# ---- the host's signals and waits
@pytest.mark.parametrize("value", [None, True, 1.0, "1", -1, 2**64, np.float64(1), np.bool_(True), IndexedBool()])
def test_bad_value_of_a_host_signal_or_wait_is_refused(exporting: Opened, value: Any) -> None:
    device, driver = exporting
    sem = timeline(device)
    before = driver.calls
    reasons = set()
    for call in (sem.host_signal, sem.host_wait):
        with pytest.raises(BadArgumentError) as caught:
            call(value)
        reasons.add(caught.value.reason)
    assert reasons <= {"value_required", "not_an_int", "value_out_of_range"}
    assert len(reasons) == 1
    assert driver.calls == before
    assert sem._state.last == 0


def test_binary_takes_no_value(exporting: Opened) -> None:
    device, driver = exporting
    sem = binary(device)
    for call in (sem.host_signal, sem.host_wait):
        with pytest.raises(BadArgumentError) as caught:
            call(1)
        assert caught.value.reason == "value_not_allowed"
    with pytest.raises(BadArgumentError) as caught:
        sem.value()
    assert caught.value.reason == "not_a_timeline"
    sem.host_signal()
    sem.host_wait(timeout_s=0)
    with pytest.raises(WaitTimeoutError):
        sem.host_wait(timeout_s=0)   # the wait reset it
    assert driver.values[sem._state.token] == 0


def test_numpy_ints_are_values_of_host_calls(exporting: Opened) -> None:
    device, driver = exporting
    sem = timeline(device)
    sem.host_signal(np.uint32(7))  # type: ignore[arg-type]
    sem.host_wait(np.int64(7), timeout_s=0)  # type: ignore[arg-type]
    assert type(driver.values[sem._state.token]) is int


def test_failed_host_signal_can_be_repeated(exporting: Opened) -> None:
    device, driver = exporting
    sem = timeline(device)
    sem.host_signal(3)
    driver.fail_signal = DriverError("no", reason="driver")
    with pytest.raises(DriverError) as caught:
        sem.host_signal(5)
    assert (caught.value.backend, caught.value.handle_type) == ("fake", S.TIMELINE_SEMAPHORE_FD)
    driver.fail_signal = None
    sem.host_signal(5)
    assert sem.value() == 5


def test_rising_values_of_many_threads_are_stored_rising(exporting: Opened) -> None:
    device, driver = exporting
    sem = timeline(device)
    stored: list[int] = []
    original = driver.host_signal

    def signal(semaphore: int, value: int | None) -> None:
        stored.append(value or 0)
        original(semaphore, value)

    driver.host_signal = signal  # type: ignore[method-assign]
    counter, lock, refused = iter(range(1, 1001)), threading.Lock(), []

    def run(_index: int) -> None:
        for _ in range(250):
            with lock:
                value = next(counter)
            try:
                sem.host_signal(value)
            except BadArgumentError:
                refused.append(value)

    in_threads(4, run)
    assert stored == sorted(stored)
    assert len(stored) + len(refused) == 1000
    assert sem.value() == max(stored)


def host_signal_refused(sem: xsem.Semaphore, value: int) -> str:
    before = sem.value()
    with pytest.raises(BusyError) as caught:
        sem.host_signal(value)
    assert (caught.value.reason, caught.value.handle_type) == ("signal_pending", S.TIMELINE_SEMAPHORE_FD)
    assert sem.value() == before
    return str(caught.value)


def test_host_signal_over_a_pending_signal_is_refused(exporting: Opened) -> None:
    device, driver = exporting
    sem, commands = timeline(device), device.create_command_list()
    commands.append_signal(sem, 3)
    commands.append_signal(sem, 4)   # a prepared append, which records its value in another way
    assert f"a signal of 3 on {commands._queue.name} is pending" in host_signal_refused(sem, 5)
    with pytest.raises(BadArgumentError) as caught:   # the refused value is not recorded, and the pending one counts
        sem.host_signal(4)
    assert caught.value.reason == "value_not_above_last"
    driver.lists[0].reach_all()
    sem.host_signal(5)
    assert sem.value() == 5


def test_host_signal_asks_the_value_before_the_lists(exporting: Opened) -> None:
    device, driver = exporting
    sem, commands = timeline(device), device.create_command_list()
    commands.append_signal(sem, 4)
    driver.values[sem._state.token] = 4   # the signal is done, and no fence of the list was seen reached
    sem.host_signal(5)
    assert driver.lists[0].markers == 0


def test_host_signal_does_not_scan_pending_waits(
    exporting: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, driver = exporting
    sem, other, commands = timeline(device), timeline(device), device.create_command_list()
    for value in (1, 2, 3):
        commands.append_wait(sem, value)
    commands.append_signal(other, 9)
    # A frame loop may have thousands of pending operations, with a host signal for each.
    class Operations(deque[Any]):
        def __iter__(self) -> Iterator[Any]:
            pytest.fail("all that is pending was looked through")

    progress = commands._queue.progress
    monkeypatch.setattr(progress, "operations", Operations(progress.operations))
    for value in (1, 2, 3):
        sem.host_signal(value)
    assert driver.lists[0].markers == 0


def test_pending_signal_that_goes_back_is_not_told_by_the_value(exporting: Opened) -> None:
    device, driver = exporting
    sem, commands = timeline(device), device.create_command_list()
    sem.host_signal(9)
    commands.append_signal(sem, SignalParams(value=2, allow_rewind=True))
    assert "a signal of 2" in host_signal_refused(sem, 3)
    driver.lists[0].reach_all()
    sem.host_signal(3)


def test_pending_signal_is_found_when_values_cannot_be_read() -> None:
    without = dataclasses.replace(ALL, features=ALL.features - {Feature.READ_VALUE})
    with fake(without) as (device, driver):
        sem, commands = timeline(device), device.create_command_list()
        commands.append_signal(sem, 4)
        with pytest.raises(BusyError) as caught:
            sem.host_signal(5)
        assert caught.value.reason == "signal_pending"
        driver.lists[0].reach_all()
        sem.host_signal(5)


def test_six_types_are_timelines() -> None:
    assert {type for type in S if type.kind is SemaphoreKind.TIMELINE} == {
        S.TIMELINE_SEMAPHORE_FD, S.TIMELINE_SEMAPHORE_WIN32, S.D3D12_FENCE, S.D3D11_FENCE, S.HOST_TIMELINE_FD,
        S.HOST_TIMELINE_WIN32}


# ---- exports
def test_each_export_has_a_handle_of_its_own(exporting: Opened) -> None:
    device, _ = exporting
    sem = timeline(device)
    with sem.export() as first, sem.export() as second:
        assert first.type is second.type is S.TIMELINE_SEMAPHORE_FD
        assert isinstance(first.handle, OwnedHandle)
        assert isinstance(second.handle, OwnedHandle)
        assert first.handle.fileno() != second.handle.fileno()


def test_export_of_an_imported_semaphore_is_refused(exporting: Opened) -> None:
    device, _ = exporting
    with pytest.raises(UnsupportedError) as caught:
        imported(device).export()
    assert caught.value.capability == "semaphore.export.timeline_semaphore_fd"
    assert caught.value.reason == "imported"


def test_export_has_the_device_identity_of_its_importer() -> None:
    ours, theirs = uuid.uuid4(), uuid.uuid4()
    with (
        fake() as (unidentified, its_driver),
        fake(info=dataclasses.replace(INFO, uuid=ours, driver_uuid=theirs)) as (device, driver),
        fake(info=dataclasses.replace(INFO, uuid=theirs)) as (other, _),
    ):
        for each in (its_driver, driver):
            each.export_semaphore = lambda _: new_handle()  # type: ignore[assignment,method-assign]
        sem = timeline(device)
        with sem.export() as desc, sem.export(for_device=device) as same:
            assert (desc.device_uuid, desc.driver_uuid) == (same.device_uuid, same.driver_uuid) == (ours, theirs)
        with sem.export(for_device=str(ours)) as known_by_uuid:
            assert (known_by_uuid.device_uuid, known_by_uuid.driver_uuid) == (ours, theirs)
        for importer in (other, theirs):
            with pytest.raises(WrongDeviceError) as caught:
                sem.export(for_device=importer)
            assert (str(ours) in str(caught.value.expected), str(theirs) in str(caught.value.actual)) == (True, True)
        for nothing in (5, "fake:0", driver):
            with pytest.raises(BadArgumentError) as refused:
                sem.export(for_device=nothing)   # type: ignore[arg-type]
            assert refused.value.reason == "bad_uuid"
        with timeline(unidentified).export(for_device=theirs.bytes) as desc:
            assert (desc.device_uuid, desc.driver_uuid) == (theirs, None)
        with timeline(unidentified).export(for_device=other) as desc:
            assert (desc.device_uuid, desc.driver_uuid) == (theirs, None)
        with timeline(unidentified).export() as desc:
            assert desc.device_uuid is None


def test_failed_export_raises_and_exports_nothing(exporting: Opened) -> None:
    device, driver = exporting
    sem, commands = timeline(device), device.create_command_list()

    def fail(_semaphore: int) -> OwnedHandle:
        raise DriverError("no", reason="driver")

    driver.export_semaphore = fail  # type: ignore[assignment,method-assign]
    with pytest.raises(DriverError) as caught:
        sem.export()
    assert caught.value.backend == "fake"
    commands.append_wait(sem, 1)
    assert device.pending()[0].possible_signallers == ()   # no handle was exported


def test_declared_capabilities_are_those_of_the_driver(exporting: Opened) -> None:
    assert exporting[0].capabilities is ALL


# ---- pickling
def test_objects_of_a_device_are_not_pickled_and_the_error_names_the_export(device: xsem.Device) -> None:
    memory = device.create_memory(MEMORY, 4096)
    objects = [device.create_semaphore(TIMELINE), memory, memory.map_buffer(), device.create_event(),
               device.create_command_list(), device]
    for given in objects:
        for act in (pickle.dumps, ForkingPickler.dumps, copy.copy):
            error = refused(lambda act=act, given=given: act(given), "object_pickled")  # type: ignore[misc]
            assert f"a {type(given).__name__} belongs to its process" in str(error)
            assert ("export()" in str(error)) == (given in objects[:2])
