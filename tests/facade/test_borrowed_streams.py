"""Lists on borrowed streams: one queue for each stream, and no driver call for a known stream."""

from __future__ import annotations

import gc

import pytest
from support.fake_backend import FakeStream, timeline
from support.fixtures import Opened
from support.waiting import until

from xsem.errors import BadArgumentError, ReleasedError, WrongDeviceError
from xsem.runtime.queues import queue_table


@pytest.mark.parametrize("known", [True, False], ids=["identity", "no identity"])
def test_lists_on_one_stream_share_its_order(opened: Opened, known: bool) -> None:
    device, driver = opened
    driver.tells_identity = known
    first, second = device.command_list(FakeStream(7)), device.command_list(FakeStream(7))
    first.append_barrier()
    second.append_barrier()
    assert first is not second
    assert len(driver.lists[0].calls) == 2
    assert len({each.command_list for each in device.pending()}) == 1


def test_known_stream_needs_no_driver_call(opened: Opened) -> None:
    device, driver = opened
    kept = device.command_list(FakeStream(7))
    before = driver.calls
    for stream in (FakeStream(7), 7):
        device.command_list(stream).append_barrier()
    assert driver.calls == before + 2   # the two barriers
    assert len(driver.lists) == 1
    assert not kept.released


def test_stream_is_known_while_work_is_in_flight(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, driver = opened
    monkeypatch.setattr(queue_table, "_MANY_QUEUES", 2)
    sem = timeline(device)
    device.command_list(FakeStream(7)).append_wait(sem, 1)
    gc.collect()
    for handle in range(100, 110):
        device.command_list(FakeStream(handle))
    gc.collect()
    assert device._queues.borrowed(7) is not None
    assert [each.command_list for each in device.pending()] == ["fake:0/stream-0x7"]
    before = len(driver.lists)
    device.command_list(FakeStream(7)).append_wait(sem, 2)
    assert len(driver.lists) == before   # the same queue, so the order of the stream is kept
    driver.finish()
    device._queues._next_look = 0
    device.command_list(FakeStream(200))
    assert device._queues.borrowed(7) is None


def test_idle_stream_with_a_list_keeps_its_queue(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = opened
    monkeypatch.setattr(queue_table, "_MANY_QUEUES", 2)
    first = device.command_list(FakeStream(7))
    second = device.command_list(FakeStream(7))
    queue = first._queue
    del first
    gc.collect()
    for handle in range(100, 110):
        device.command_list(FakeStream(handle))
    assert device._queues.borrowed(7) is queue
    second.append_barrier()


def test_release_of_one_list_leaves_the_others(opened: Opened) -> None:
    device, driver = opened
    first, second = device.command_list(FakeStream(7)), device.command_list(FakeStream(7))
    first.release()
    assert (first.released, second.released) == (True, False)
    with pytest.raises(ReleasedError, match="stream-0x7"):
        first.append_barrier()
    second.append_barrier()
    assert driver.lists[0].closed == 0
    device.release()
    assert second.released
    with pytest.raises(ReleasedError):
        second.append_barrier()
    driver.finish()
    until(lambda: driver.lists[0].closed == 1)


@pytest.mark.parametrize(("error", "reason"), [
    (BadArgumentError("only mine", reason="not_a_stream"), "not_a_stream"),
    (WrongDeviceError("elsewhere", expected="fake:0", actual="fake:1", reason="wrong_device"), "wrong_device"),
])
def test_identity_that_refuses_a_stream_is_reported(opened: Opened, error: Exception, reason: str) -> None:
    device, driver = opened

    def queue_identity(_stream: object) -> int:
        raise error

    driver.queue_identity = queue_identity  # type: ignore[assignment,method-assign]
    with pytest.raises((BadArgumentError, WrongDeviceError)) as caught:
        device.command_list(FakeStream(7))
    assert (caught.value.reason, caught.value.backend) == (reason, "fake")


def test_semaphore_waits_and_signals_on_a_stream(opened: Opened) -> None:
    device, driver = opened
    sem = timeline(device)
    sem.wait(1, stream=FakeStream(7))
    sem.signal(2, stream=FakeStream(7))
    [native] = driver.lists
    assert [call[0] for call in native.calls] == ["wait", "signal"]
    with pytest.raises(BadArgumentError, match="stream") as caught:
        sem.wait(3, stream="7")   # type: ignore[arg-type]
    assert caught.value.reason == "not_a_stream"
