"""Lists as CUDA streams: the stream protocol, and the current stream of torch and CuPy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from support.at_once import in_thread
from support.fake_backend import FakeDriver, FakeList
from support.fixtures import Opened, refused
from support.frameworks import Frameworks
from support.waiting import until

import xsem
from xsem import spi
from xsem.errors import DriverError, ReleasedError, UnsupportedError, WouldBlockError

HANDLE, ORDINAL = 0x1000, 1


class CudaList(FakeList, spi.CudaStreamQueue):
    def cuda_stream(self) -> tuple[int, int]:
        self.driver.check_open("cuda_stream")
        assert self.native_handle is not None
        return self.native_handle, ORDINAL


class Machine:
    """Modules with the current streams of both frameworks."""

    def __init__(self) -> None:
        self.frameworks = Frameworks()
        self.torch: Any = self.frameworks.torch()
        self.cupy: Any = self.frameworks.cupy()

    def state(self) -> tuple[int, list[int], list[int]]:
        """Return the current device, and the current streams of devices 0 and 1 in torch and in CuPy."""
        return (self.frameworks.device, [self.torch.cuda.current_stream(each).ptr for each in (0, 1)],
                [self.cupy.cuda.get_current_stream(each).ptr for each in (0, 1)])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setitem(sys.modules, "torch", made.torch)
    monkeypatch.setitem(sys.modules, "cupy", made.cupy)
    return made


@pytest.fixture
def commands(opened: Opened) -> Iterator[xsem.CommandList]:
    device, driver = opened

    def create_queue() -> Any:
        driver.lists.append(CudaList(driver, HANDLE))
        return driver.lists[-1]

    driver.create_queue = create_queue  # type: ignore[method-assign]
    yield device.create_command_list()
    driver.finish()


def fake_driver(commands: xsem.CommandList) -> FakeDriver:
    found = commands.device._device_state.driver
    assert isinstance(found, FakeDriver)
    return found


DEFAULT = (0, [0, 0], [0, 0])
CURRENT = (ORDINAL, [0, HANDLE], [0, HANDLE])


# ---- the protocol
def test_list_is_a_cuda_stream(commands: xsem.CommandList) -> None:
    assert commands.__cuda_stream__() == (0, HANDLE)
    fake_driver(commands).lists[0].capture = True   # the application may capture the stream from now on
    commands.append_barrier()
    with pytest.raises(xsem.BusyError) as caught:
        commands.query()
    assert caught.value.reason == "capturing"
    fake_driver(commands).lists[0].capture = False


@pytest.mark.parametrize("act", [
    lambda commands: commands.__cuda_stream__(), lambda commands: commands.as_current().__enter__()])
def test_other_lists_are_refused(opened: Opened, machine: Machine, act: Any) -> None:
    error = refused(lambda: act(opened[0].create_command_list()), "unsupported", UnsupportedError)
    assert isinstance(error, UnsupportedError)
    assert error.capability == "cuda_stream"
    assert machine.state() == DEFAULT


def test_released_list_is_no_stream(commands: xsem.CommandList, machine: Machine) -> None:
    made = commands.as_current()
    commands.release()
    for act in (commands.__cuda_stream__, commands.as_current, made.__enter__):
        with pytest.raises(ReleasedError):
            act()
    assert machine.state() == DEFAULT


# ---- the current stream
def test_block_sets_and_restores_the_streams(commands: xsem.CommandList, machine: Machine) -> None:
    with commands.as_current() as same:
        assert same is commands
        assert machine.state() == CURRENT
        with commands.as_current():
            assert machine.state() == CURRENT
        assert machine.state() == CURRENT
    assert machine.state() == DEFAULT


def test_block_restores_after_an_exception(commands: xsem.CommandList, machine: Machine) -> None:
    with pytest.raises(ZeroDivisionError), commands.as_current():
        raise ZeroDivisionError
    assert machine.state() == DEFAULT
    assert [each.operation for each in commands.device.pending()] == ["work"]   # what the block enqueued before


def test_block_restores_the_streams_that_it_found(commands: xsem.CommandList, machine: Machine) -> None:
    machine.torch.cuda.set_stream(machine.torch.cuda.ExternalStream(0x20, device=1))
    machine.torch.cuda.set_stream(machine.torch.cuda.ExternalStream(0x10, device=0))
    before = machine.state()
    with commands.as_current():
        assert machine.state() == (ORDINAL, [0x10, HANDLE], [0, HANDLE])
    assert machine.state() == before == (0, [0x10, 0x20], [0, 0])


def test_block_applies_to_one_thread(commands: xsem.CommandList, machine: Machine) -> None:
    with commands.as_current():
        seen: list[object] = []
        in_thread(lambda: seen.append(machine.state()))
        assert seen == [DEFAULT]


def test_legacy_stream_is_torchs_default_stream(commands: xsem.CommandList, machine: Machine) -> None:
    fake_driver(commands).lists[0].native_handle = 1
    with commands.as_current():
        assert machine.state() == (ORDINAL, [0, 0], [0, 1])


@pytest.mark.parametrize("present", ["torch", "cupy"])
def test_one_framework_is_enough(
    commands: xsem.CommandList, machine: Machine, monkeypatch: pytest.MonkeyPatch, present: str
) -> None:
    absent = "cupy" if present == "torch" else "torch"
    monkeypatch.delitem(sys.modules, absent)
    with commands.as_current():
        _, torch, cupy = machine.state()
        assert ((torch if present == "torch" else cupy)[1], (cupy if present == "torch" else torch)[1]) == (HANDLE, 0)
    assert machine.state() == DEFAULT
    assert absent not in sys.modules


def test_builds_without_cuda_do_not_count(
    commands: xsem.CommandList, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", machine.frameworks.torch(cuda=None))
    monkeypatch.setitem(sys.modules, "cupy", machine.frameworks.cupy(is_hip=True))
    error = refused(lambda: commands.as_current().__enter__(), "no_framework", UnsupportedError)
    assert "torch" in str(error)
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.delitem(sys.modules, "cupy")
    refused(lambda: commands.as_current().__enter__(), "no_framework", UnsupportedError)
    assert commands.device.pending() == ()


def test_failure_of_one_framework_restores_the_other(
    commands: xsem.CommandList, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no such device")

    monkeypatch.setattr(machine.cupy.cuda.ExternalStream.__mro__[1], "__init__", fail)
    with pytest.raises(RuntimeError, match="no such device"), commands.as_current():
        pytest.fail("the block ran")
    monkeypatch.undo()
    assert machine.state() == DEFAULT
    assert commands.device.pending() == ()


# ---- the work of the block in the order of the list
def test_synchronize_includes_the_work_of_the_block(commands: xsem.CommandList, machine: Machine) -> None:
    driver = fake_driver(commands)
    commands.append_barrier()
    driver.everything_is_done = True
    commands.synchronize()
    driver.everything_is_done = False
    with commands.as_current():
        pass   # torch enqueues its kernels here
    assert not commands.query()
    driver.lists[0].reach_all()
    commands.synchronize()


def test_stream_outlives_a_release_inside_the_block(commands: xsem.CommandList, machine: Machine) -> None:
    driver = fake_driver(commands)
    with commands.as_current():
        commands.release()
        assert driver.lists[0].closed == 0
        assert commands.device.releasing() != ()
    until(lambda: driver.lists[0].closed == 1)
    assert machine.state() == DEFAULT


def test_block_that_ends_on_a_failed_list_raises(commands: xsem.CommandList, machine: Machine) -> None:
    with pytest.raises(DriverError), commands.as_current():
        commands._queue.fail(DriverError("lost", reason="lost"))
    assert machine.state() == DEFAULT
    with pytest.raises(DriverError):
        commands.as_current().__enter__()


def test_block_reports_a_full_queue(commands: xsem.CommandList, machine: Machine) -> None:
    def full(work: object) -> None:
        raise WouldBlockError("full", reason="would_block")

    with pytest.raises(WouldBlockError), commands.as_current():
        fake_driver(commands).lists[0].append_work = full  # type: ignore[method-assign]
    assert machine.state() == DEFAULT
