"""Processes that share rings and timelines with the lists of a real GPU are killed at any moment."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest
from support.gpu import needs_gpu
from support.kills import consumers_are_killed, fork_server, holders_are_killed, producers_are_killed
from support.open_files import numbers
from support.waiting import until

import xsem

__all__ = ["fork_server"]

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(580)]

BLOCK = 50
AHEAD = 6   # a context of CUDA takes long to open


@pytest.fixture
def cuda() -> Iterator[xsem.Device]:
    needs_gpu()
    with xsem.open_device("cuda:0") as device:
        yield device


@pytest.mark.parametrize("rounds", [10, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("on", [None, "host"], ids=["on the GPU", "on the host"])
@pytest.mark.parametrize("killed", [
    functools.partial(role, policy=policy) for role in (producers_are_killed, consumers_are_killed)
    for policy in ("fifo", "mailbox")
] + [holders_are_killed], ids=["producer-fifo", "producer-mailbox", "consumer-fifo", "consumer-mailbox", "timeline"])
def test_process_is_killed_at_any_moment(
    cuda: xsem.Device, killed: Callable[..., float], on: str | None, rounds: int, capsys: pytest.CaptureFixture[str]
) -> None:
    killed(cuda, rounds=1, on=on)   # what the device keeps from its first use on
    before = numbers()
    slowest_s = 0.0
    for done in range(0, rounds, BLOCK):
        now = min(BLOCK, rounds - done)
        slowest_s = max(slowest_s, killed(cuda, rounds=now, ahead=AHEAD, on=on))
        until(lambda: numbers() <= before)
        with capsys.disabled():   # also what held until a machine was taken away
            print(f" {done + now} kills, longest end {slowest_s * 1e3:.0f} ms", flush=True)
