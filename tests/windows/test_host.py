"""The host device on Windows: events, sections and timelines, in one process and between processes."""

from __future__ import annotations

import ctypes
import multiprocessing
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from support import windows_objects as nt
from support.fixtures import device, refused
from support.waiting import until

import xsem
from xsem.errors import BadArgumentError, BadHandleError, WaitTimeoutError
from xsem.portable import windows_timeline
from xsem.portable.timeline import TIMELINE_BYTES
from xsem.portable.windows import map_shared, signal_named_event
from xsem.types import MemoryDesc, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType
from xsem_host.windows_semaphores import new_binary

__all__ = ["device"]

BINARY, TIMELINE = SemaphoreHandleType.OPAQUE_WIN32, SemaphoreHandleType.TIMELINE_SEMAPHORE_WIN32
MEMORY = MemoryHandleType.OPAQUE_WIN32
VALUE_AT = 16   # docs/host-objects.md
LONG_NS = int(nt.BOUND_S * 1e9)


def again(device: xsem.Device, semaphore: xsem.Semaphore) -> xsem.Semaphore:
    with semaphore.export() as desc:
        return device.import_semaphore(desc)


# ---- binary
def test_binary_wait_resets_and_two_signals_are_one(device: xsem.Device) -> None:
    semaphore = device.create_semaphore(BINARY)
    other = again(device, semaphore)
    for _ in range(2):
        semaphore.host_signal()
    other.host_wait(timeout_s=nt.BOUND_S)
    with pytest.raises(WaitTimeoutError):
        semaphore.host_wait(timeout_s=0.01)


def test_binary_wakes_exactly_one_of_several_waiters() -> None:
    semaphore = new_binary()
    met: list[int] = []
    threads = [threading.Thread(target=lambda: met.append(1) if semaphore.wait(None, LONG_NS) else None)
               for _ in range(4)]
    for each in threads:
        each.start()
    for count in range(1, 5):
        semaphore.signal()
        until(lambda count=count: len(met) == count)  # type: ignore[misc]
        assert not semaphore.wait(None, 0)
    for each in threads:
        each.join()
    semaphore.close()


# ---- timeline
def test_timeline_compares_unsigned_over_64_bits_and_may_go_back() -> None:
    timeline = windows_timeline.new_timeline(2**64 - 2)
    assert timeline.wait(2**63, 0)
    assert not timeline.wait(2**64 - 1, 0)
    timeline.signal(3)
    assert (timeline.value, timeline.wait(4, 0)) == (3, False)
    timeline.close()


def sleepers(timeline: windows_timeline.Timeline) -> int:
    return sum(timeline._waiters)


def _append_wait(met: list[bool], timeline: windows_timeline.Timeline, value: int) -> None:
    met.append(timeline.wait(value, LONG_NS))


def test_signal_wakes_every_sleeper_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check once a second."""
    monkeypatch.setattr(windows_timeline, "_LONGEST_SLEEP_NS", LONG_NS)
    timeline = windows_timeline.new_timeline(0)
    met: list[bool] = []
    threads = [threading.Thread(target=_append_wait, args=(met, timeline, value))
               for value in (1, 2**40, 2**40, 2**63)]
    for each in threads:
        each.start()
    until(lambda: sleepers(timeline) == 4)
    timeline.signal(2**40)
    until(lambda: len(met) == 3)
    timeline.signal(2**63)
    for each in threads:
        each.join()
    assert met == [True] * 4
    assert sleepers(timeline) == 0
    timeline.close()


def test_signal_between_look_and_sleep_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_timeline, "_LONGEST_SLEEP_NS", LONG_NS)
    timeline = windows_timeline.new_timeline(0)
    real = timeline._reached
    looks: list[bool] = []

    def then_signalled(wanted: int) -> bool:
        looks.append(real(wanted))
        if len(looks) == 2:   # the look after the byte of the waiter was set
            timeline.signal(1)
        return looks[-1]

    monkeypatch.setattr(timeline, "_reached", then_signalled)
    assert timeline.wait(1, LONG_NS)
    assert looks == [False, False, True]
    timeline.close()


def test_timelines_of_many_threads_lose_no_wake_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows_timeline, "_LONGEST_SLEEP_NS", LONG_NS)
    pairs = [(windows_timeline.new_timeline(0), windows_timeline.new_timeline(0)) for _ in range(3)]
    rounds = 60

    def answer(ask: windows_timeline.Timeline, reply: windows_timeline.Timeline) -> None:
        for turn in range(1, rounds + 1):
            assert ask.wait(turn, LONG_NS)
            reply.signal(turn)

    threads = [threading.Thread(target=answer, args=pair) for pair in pairs]
    for each in threads:
        each.start()
    for turn in range(1, rounds + 1):
        for ask, _ in pairs:
            ask.signal(turn)
        for _, reply in pairs:
            assert reply.wait(turn, LONG_NS)
    for each in threads:
        each.join()
    for pair in pairs:
        for timeline in pair:
            timeline.close()


def test_wait_without_a_place_for_its_event_is_met() -> None:
    timeline = windows_timeline.new_timeline(0)
    events = [nt.event(name=f"{timeline._names}{place}") for place in range(256)]
    met: list[bool] = []
    thread = threading.Thread(target=lambda: met.append(timeline.wait(1, LONG_NS)))
    thread.start()
    timeline.signal(1)
    thread.join()
    assert met == [True]
    for each in events:
        nt.close(each)
    timeline.close()


def test_value_of_a_peer_killed_between_store_and_wake_is_seen() -> None:
    timeline = windows_timeline.new_timeline(0)
    pages = map_shared(timeline.fd, TIMELINE_BYTES)
    met: list[bool] = []
    thread = threading.Thread(target=_append_wait, args=(met, timeline, 5))
    thread.start()
    until(lambda: sleepers(timeline) == 1)
    ctypes.c_uint64.from_address(pages.address + VALUE_AT).value = 5   # the peer got as far as this store
    thread.join()
    assert met == [True]
    pages.close()
    timeline.close()


def test_wait_that_a_peer_disturbs_goes_on() -> None:
    """A peer signals the waiter's event without a new value."""
    timeline = windows_timeline.new_timeline(0)
    real = timeline._reached
    looks: list[int] = []
    met: list[bool] = []

    def look(wanted: int) -> bool:
        looks.append(wanted)
        return real(wanted)

    timeline._reached = look   # type: ignore[method-assign]
    thread = threading.Thread(target=_append_wait, args=(met, timeline, 1))
    thread.start()
    until(lambda: sleepers(timeline) == 1)
    place = list(timeline._waiters).index(1)
    for _ in range(20):
        seen = len(looks)
        signal_named_event(f"{timeline._names}{place}")
        until(lambda seen=seen: len(looks) > seen)  # type: ignore[misc]
        assert met == []
    timeline.signal(1)
    thread.join()
    assert met == [True]
    timeline.close()


def test_wait_does_not_spin() -> None:
    timeline, binary = windows_timeline.new_timeline(0), new_binary()
    for semaphore, value in ((timeline, 1), (binary, None)):
        began = time.thread_time()
        assert not semaphore.wait(value, 300_000_000)
        assert time.thread_time() - began < 0.15
    timeline.close()
    binary.close()


def test_timeline_without_a_value_is_refused() -> None:
    timeline = windows_timeline.new_timeline(0)
    for call in (lambda: timeline.signal(None), lambda: timeline.wait(None, 0)):
        refused(call, "value_required", BadArgumentError)
    timeline.close()


# ---- refusals
def binary_of(number: int) -> SemaphoreDesc:
    return SemaphoreDesc.opaque_win32(number, device_uuid=None)


def timeline_of(number: int) -> SemaphoreDesc:
    return SemaphoreDesc.timeline_win32(number, device_uuid=None)


def memory_of(number: int, size: int = 4096) -> MemoryDesc:
    return MemoryDesc.opaque_win32(number, allocation_size=size, device_uuid=None)


def file_section() -> int:
    import msvcrt
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(bytes(8192))
        file.flush()
        return nt.section(8192, file=msvcrt.get_osfhandle(file.fileno()))  # type: ignore[attr-defined,unused-ignore]


Wanted = Callable[[int], SemaphoreDesc] | Callable[[int], MemoryDesc]
REFUSED: dict[str, tuple[Callable[[], int], Wanted, str]] = {
    "manual event": (lambda: nt.event(manual=True), binary_of, "event_stays_signalled"),
    "section as binary": (nt.section, binary_of, "wrong_object"),
    "semaphore as binary": (nt.counting_semaphore, binary_of, "wrong_object"),
    "event as timeline": (nt.event, timeline_of, "wrong_object"),
    "event as memory": (nt.event, memory_of, "wrong_object"),
    "memory as timeline": (nt.section, timeline_of, "wrong_magic"),
    "short": (lambda: nt.section(4096), lambda number: memory_of(number, 4097), "short_page"),
    "reserved": (lambda: nt.section(8192, nt.RESERVE), memory_of, "not_of_paging_file"),
    "of a file": (file_section, memory_of, "not_of_paging_file"),
    "closed": (lambda: 0x7770, binary_of, "closed_fd"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_object_of_another_sort_is_refused(case: str, device: xsem.Device) -> None:
    make, wanted, reason = REFUSED[case]
    number = make()
    desc = wanted(number)
    refused(lambda: device.import_memory(desc) if isinstance(desc, MemoryDesc) else device.import_semaphore(desc),
            reason, BadHandleError)
    assert nt.close(number) is (case != "closed")


@pytest.mark.parametrize(("full", "access", "wanted"), [
    (nt.event, nt.SYNCHRONIZE | 1, binary_of), (nt.event, nt.SYNCHRONIZE, binary_of), (nt.section, 5, memory_of),
    (nt.section, 4, memory_of),
])
def test_handle_without_access_is_refused(
    full: Callable[[], int], access: int, wanted: Wanted, device: xsem.Device
) -> None:
    with nt.closing(full()) as number, nt.closing(nt.with_access(number, access)) as less:
        desc = wanted(less)
        refused(lambda: device.import_memory(desc) if isinstance(desc, MemoryDesc) else device.import_semaphore(desc),
                "read_only", BadHandleError)


NEEDED_BY_EVENT, NEEDED_BY_SECTION = nt.SYNCHRONIZE | 2, 6   # SetEvent and waits; MAP_READ and MAP_WRITE


@pytest.mark.parametrize("more", [0, 1])   # 1: the access to ask about the object
def test_handle_with_the_needed_access_is_imported(more: int, device: xsem.Device) -> None:
    with nt.closing(nt.event()) as event, nt.closing(nt.timeline()) as timeline, \
            nt.closing(nt.section(8192)) as section, \
            nt.closing(nt.with_access(event, NEEDED_BY_EVENT | more)) as binary, \
            nt.closing(nt.with_access(timeline, NEEDED_BY_SECTION | more)) as turns, \
            nt.closing(nt.with_access(section, NEEDED_BY_SECTION | more)) as memory:
        _use(device, device.import_semaphore(binary_of(binary)), device.import_memory(memory_of(memory, 8192)))
        semaphore = device.import_semaphore(timeline_of(turns))
        semaphore.host_signal(3)
        semaphore.host_wait(3, timeout_s=nt.BOUND_S)
        refused(lambda: device.import_memory(memory_of(memory, 8193)), "short_page", BadHandleError)
        refused(lambda: device.import_semaphore(timeline_of(memory)), "wrong_magic", BadHandleError)
        refused(lambda: device.import_memory(memory_of(turns)), "wrong_kind", BadHandleError)


def _use(device: xsem.Device, semaphore: xsem.Semaphore, memory: xsem.Memory) -> None:
    semaphore.host_signal()
    semaphore.host_wait(timeout_s=nt.BOUND_S)
    pixels = memory.map_buffer().numpy()
    pixels[:4] = (1, 2, 3, 4)
    assert pixels[:4].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("case", ["reserved", "of a file"])
def test_section_that_may_be_inaccessible_is_refused_with_the_needed_access(case: str, device: xsem.Device) -> None:
    with nt.closing(REFUSED[case][0]()) as number, nt.closing(nt.with_access(number, NEEDED_BY_SECTION)) as less:
        refused(lambda: device.import_memory(memory_of(less)), "not_of_paging_file", BadHandleError)
        refused(lambda: device.import_semaphore(timeline_of(less)), "not_of_paging_file", BadHandleError)


def test_timeline_as_memory_is_refused(device: xsem.Device) -> None:
    with device.create_semaphore(TIMELINE).export() as desc:
        assert desc.handle is not None
        wanted = MemoryDesc(type=MEMORY, allocation_size=4096, handle=desc.handle)
        refused(lambda: device.import_memory(wanted), "wrong_kind", BadHandleError)


# ---- names
def test_objects_are_imported_by_name(device: xsem.Device) -> None:
    with nt.closing(nt.event(name="Local\\xsem-test-ß")) as event, \
            nt.closing(nt.section(8192, name="Local\\xsem-test-section")) as section:
        semaphore = device.import_semaphore(SemaphoreDesc.opaque_win32(name="Local\\xsem-test-ß", device_uuid=None))
        semaphore.host_signal()
        assert nt.is_signalled(event)
        memory = device.import_memory(MemoryDesc.opaque_win32(
            name="Local\\xsem-test-section", allocation_size=8192, device_uuid=None))
        memory.map_buffer().numpy()[:4] = (1, 2, 3, 4)
        by_handle = device.import_memory(memory_of(section, 8192))
        assert by_handle.map_buffer().numpy()[:4].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("more", [0, 1])
def test_name_with_the_needed_access_is_imported(more: int, device: xsem.Device) -> None:
    event, section = f"Local\\xsem-dacl-event-{more}", f"Local\\xsem-dacl-section-{more}"
    with nt.closing(nt.event(name=event, access=NEEDED_BY_EVENT | more)), \
            nt.closing(nt.section(name=section, access=NEEDED_BY_SECTION | more)):
        _use(device, device.import_semaphore(SemaphoreDesc.opaque_win32(name=event, device_uuid=None)),
             device.import_memory(MemoryDesc.opaque_win32(name=section, allocation_size=4096, device_uuid=None)))


def test_name_of_an_object_without_access_or_of_another_type_is_refused(device: xsem.Device) -> None:
    def binary(name: str) -> Callable[[], object]:
        return lambda: device.import_semaphore(SemaphoreDesc.opaque_win32(name=name, device_uuid=None))

    def memory(name: str) -> Callable[[], object]:
        return lambda: device.import_memory(MemoryDesc.opaque_win32(name=name, allocation_size=1, device_uuid=None))

    with nt.closing(nt.event(name="Local\\xsem-closed-event", access=nt.SYNCHRONIZE | 1)), \
            nt.closing(nt.section(name="Local\\xsem-closed-section", access=5)):
        for act, reason, code in (
            (binary("Local\\xsem-closed-event"), "read_only", "ERROR_ACCESS_DENIED"),
            (memory("Local\\xsem-closed-section"), "read_only", "ERROR_ACCESS_DENIED"),
            (binary("Local\\xsem-closed-section"), "wrong_object", "ERROR_INVALID_HANDLE"),
            (memory("Local\\xsem-closed-event"), "wrong_object", "ERROR_INVALID_HANDLE"),
            (binary("Local\\none"), "name_not_found", "ERROR_FILE_NOT_FOUND"),
        ):
            with pytest.raises(BadHandleError) as caught:
                act()
            assert (caught.value.reason, caught.value.code_name) == (reason, code)


def test_unknown_name_is_refused(device: xsem.Device) -> None:
    for act in (
        lambda: device.import_semaphore(SemaphoreDesc.opaque_win32(name="Local\\none", device_uuid=None)),
        lambda: device.import_semaphore(SemaphoreDesc.timeline_win32(name="Local\\none", device_uuid=None)),
        lambda: device.import_memory(MemoryDesc.opaque_win32(name="Local\\none", allocation_size=1, device_uuid=None)),
    ):
        refused(act, "name_not_found", BadHandleError)


# ---- two processes
def test_frames_between_two_processes(device: xsem.Device) -> None:
    turns, done = device.create_semaphore(TIMELINE), device.create_semaphore(BINARY)
    memory = device.create_memory(MEMORY, 8192)
    view = memory.map_buffer().numpy()
    commands = device.create_command_list()
    frames = 100
    with turns.export() as turns_desc, done.export() as done_desc, memory.export() as memory_desc:
        child = multiprocessing.get_context("spawn").Process(
            target=nt.consume, args=(turns_desc, done_desc, memory_desc, frames))
        child.start()
    for frame in range(1, frames + 1):
        view[:] = frame
        commands.append_signal(turns, frame)
        commands.append_wait(done)
        commands.synchronize(timeout_s=nt.BOUND_S)
        assert np.all(view == 100 + frame)
    child.join(nt.BOUND_S)
    assert child.exitcode == 0
    child.close()


def test_killed_waiter_blocks_no_other_process(device: xsem.Device) -> None:
    turns, begun = device.create_semaphore(TIMELINE), device.create_semaphore(BINARY)
    with turns.export() as turns_desc, begun.export() as begun_desc:
        child = multiprocessing.get_context("spawn").Process(target=nt.wait_for_ever, args=(turns_desc, begun_desc))
        child.start()
        timeline = windows_timeline.open_timeline(turns_desc.handle.take())  # type: ignore[union-attr]
    begun.host_wait(timeout_s=nt.BOUND_S)
    until(lambda: sleepers(timeline) == 1)
    child.kill()
    child.join(nt.BOUND_S)
    child.close()
    assert sleepers(timeline) == 1   # its byte stays, and its event does not
    turns.host_signal(1)
    met: list[bool] = []
    threads = [threading.Thread(target=lambda: met.append(timeline.wait(2, LONG_NS))) for _ in range(2)]
    for each in threads:
        each.start()
    until(lambda: sleepers(timeline) == 3)
    turns.host_signal(2)
    for each in threads:
        each.join()
    assert met == [True, True]
    timeline.close()


def test_peer_that_overwrites_the_page_harms_only_its_values(device: xsem.Device) -> None:
    turns, begun = device.create_semaphore(TIMELINE), device.create_semaphore(BINARY)
    with turns.export() as turns_desc, begun.export() as begun_desc:
        child = multiprocessing.get_context("spawn").Process(target=nt.overwrite_for_ever,
                                                             args=(turns_desc, begun_desc))
        child.start()
    begun.host_wait(timeout_s=nt.BOUND_S)
    for value in range(1, 51):
        turns.host_signal(value)
        assert 0 <= turns.value() < 2**64
    with device.create_command_list() as commands:
        commands.append_wait(turns, 2**63)
        commands.synchronize(timeout_s=nt.BOUND_S)   # half of the peer's values are large enough
    child.kill()
    child.join(nt.BOUND_S)
    child.close()
    # The peer overwrote the magic number: no process can join, and the processes that joined before continue.
    turns.host_signal(51)
    turns.host_wait(51, timeout_s=nt.BOUND_S)
    assert turns.value() == 51
    with turns.export() as desc:
        refused(lambda: device.import_semaphore(desc), "wrong_magic", BadHandleError)
