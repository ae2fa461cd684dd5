"""Simulated CUDA and simulated Level Zero import the same objects of ``host``: in one process and in two."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack

import pytest
from support.cuda_sim import stand_in_environment
from support.levelzero_facade import BINARY, BOUND_S, PAGE, TIMELINE, value_of
from support.levelzero_sim import level_zero_command
from support.stand_in import run_there

import xsem
import xsem.ipc
from xsem.types import MemoryHandleType, SemaphoreHandleType

ROUNDS = 20


def both(_settings: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    return level_zero_command(), stand_in_environment()


on_both = run_there("cuda and levelzero", both, {})

# Reads the first half of each round, adds its own half, and signals the round.
SECOND = """
import socket, sys, xsem, xsem.ipc
with socket.socket(fileno=int(sys.argv[1])) as connection, xsem.open_device(sys.argv[2]) as here:
    with xsem.ipc.receive(connection) as message:
        go, done = (here.import_semaphore(desc) for desc in message.semaphores)
        memory = here.import_memory(message.memories[0])
    numbered = go.type is xsem.SemaphoreHandleType.TIMELINE_SEMAPHORE_FD
    commands = here.create_command_list()
    first, second = memory.map_buffer(0, 2048), memory.map_buffer(2048, 2048)
    for number in range(1, int(sys.argv[3]) + 1):
        commands.append_wait(go, number if numbered else None)
        commands.append_copy(second, first)
        commands.append_signal(done, number if numbered else None)
        commands.synchronize(timeout_s=20)
"""


def imported(there: xsem.Semaphore, device: xsem.Device) -> xsem.Semaphore:
    with there.export(for_device=device) as desc:
        return device.import_semaphore(desc)


@pytest.mark.parametrize("kind", [TIMELINE, BINARY])
@pytest.mark.parametrize(("first", "second"), [("levelzero:0", "cuda:0"), ("cuda:0", "levelzero:0")])
@on_both
def test_importers_alternate_in_one_process(first: str, second: str, kind: SemaphoreHandleType) -> None:
    with xsem.open_device("host") as host, xsem.open_device(first) as one, xsem.open_device(second) as two:
        there = [host.create_semaphore(kind) for _ in range(2)]
        memory = host.create_memory(MemoryHandleType.OPAQUE_FD, PAGE)
        halves = []
        for device in (one, two):
            with memory.export(for_device=device) as desc:
                here = device.import_memory(desc)
            halves.append([here.map_buffer(0, PAGE // 2), here.map_buffer(PAGE // 2, PAGE // 2)])
        semaphores = [[imported(each, device) for each in there] for device in (one, two)]
        (go, done), (go_two, done_two) = semaphores
        lists = [one.create_command_list(), two.create_command_list()]
        seen = memory.map_buffer()
        for number in range(1, ROUNDS + 1):
            value = value_of(kind, number)
            # The second device appends first: it is held until the first has filled and signalled.
            lists[1].append_wait(go_two, value)
            lists[1].append_copy(halves[1][1], halves[1][0])
            lists[1].append_signal(done_two, value)
            assert not lists[1].query()
            lists[0].append_fill(halves[0][0], bytes([number]))
            lists[0].append_signal(go, value)
            lists[0].append_wait(done, value)
            lists[0].synchronize(timeout_s=BOUND_S)
            assert seen.numpy().tobytes() == bytes([number]) * PAGE


@pytest.mark.parametrize("kind", [TIMELINE, BINARY])
@pytest.mark.parametrize(("first", "second"), [("levelzero:0", "cuda:0"), ("cuda:0", "levelzero:0")])
@on_both
def test_importers_alternate_in_two_processes(first: str, second: str, kind: SemaphoreHandleType) -> None:
    mine, theirs = socket.socketpair()
    command = [sys.executable, "-c", SECOND, str(theirs.fileno()), second, str(ROUNDS)]
    with mine, xsem.open_device("host") as host, xsem.open_device(first) as one:
        with theirs:
            child = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=dict(os.environ))
        try:
            there = [host.create_semaphore(kind) for _ in range(2)]
            memory = host.create_memory(MemoryHandleType.OPAQUE_FD, PAGE)
            with ExitStack() as exports:
                descs = [exports.enter_context(each.export()) for each in there]
                xsem.ipc.send(mine, *descs, exports.enter_context(memory.export()))
            with memory.export(for_device=one) as desc:
                half = one.import_memory(desc).map_buffer(0, PAGE // 2)
            go, done = (imported(each, one) for each in there)
            commands = one.create_command_list()
            seen = memory.map_buffer()
            for number in range(1, ROUNDS + 1):
                value = value_of(kind, number)
                commands.append_fill(half, bytes([number]))
                commands.append_signal(go, value)
                commands.append_wait(done, value)
                commands.synchronize(timeout_s=BOUND_S)
                assert seen.numpy().tobytes() == bytes([number]) * PAGE
            assert child.wait(BOUND_S) == 0
        finally:
            child.kill()
            child.wait()
