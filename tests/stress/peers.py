"""Peers killed at random moments: exporters while this process waits for them, importers while they wait for it.

In the surviving process no call hangs or crashes, its own signal meets the pending waits, and no resource of the dead
peer remains.
"""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import threading
import uuid as _uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import xsem
from stress import census
from stress.rig import MEMORY, TIMELINE, Result, Rig, for_uuid, open_exporter
from xsem import ipc

__all__ = ["peer_main", "run"]

SIZE: Final = 1 << 16
AHEAD: Final = 50
OUT_OF_REACH: Final = 1 << 40   # no peer reaches this value
TIMEOUT_S: Final = 60.0
LOOK_S: Final = 0.05
# A peer that is not killed ends by itself.
PEER_S: Final = 120.0


# ---- the side of the peer: run.py --peer WHAT FD OPTIONS
def peer_main(what: str, fd: int, options: str) -> None:
    """Play one role until this process is killed or the other side is gone."""
    asked = json.loads(options)
    with socket.socket(fileno=fd) as sock:
        (_export if what == "exporter" else _import)(sock, asked)


def _export(sock: socket.socket, asked: dict[str, Any]) -> None:
    uuid = None if asked["uuid"] is None else _uuid.UUID(hex=asked["uuid"])
    with open_exporter(asked["exporter"], uuid) as device:
        drawn, answered = device.create_semaphore(TIMELINE), device.create_semaphore(TIMELINE)
        memory = device.create_memory(MEMORY, SIZE)
        with (for_uuid(drawn.export(), device, uuid) as first, for_uuid(answered.export(), device, uuid) as second,
              for_uuid(memory.export(), device, uuid) as third):
            ipc.send(sock, first, second, third)
        commands = device.create_command_list()
        buffer = memory.map_buffer()
        for frame in range(1, OUT_OF_REACH):
            commands.append_fill(buffer, bytes([frame % 256]) * 4)
            commands.append_signal(drawn, frame, release=[memory])
            answered.host_wait(frame, timeout_s=PEER_S)


def _import(sock: socket.socket, asked: dict[str, Any]) -> None:
    with xsem.open_device(asked["device"]) as device:
        with ipc.receive(sock, timeout_s=PEER_S) as message:
            drawn, answered = (device.import_semaphore(each) for each in message.semaphores)
            memory = device.import_memory(message.memories[0])
        buffer = memory.map_buffer()
        commands = device.create_command_list()
        for frame in range(1, OUT_OF_REACH):
            commands.append_wait(drawn, frame)
            commands.append_fill(buffer, bytes([frame % 256]))
            commands.append_signal(answered, frame)
            if frame % AHEAD == 0:
                commands.synchronize(timeout_s=PEER_S)


# ---- this side
@contextmanager
def _peer(what: str, options: dict[str, Any]) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes]]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = subprocess.Popen([sys.executable, str(Path(__file__).parent / "run.py"), "--peer", what,
                                        str(theirs.fileno()), json.dumps(options)], pass_fds=[theirs.fileno()],
                                       stdin=subprocess.DEVNULL)
        try:
            yield ours, process
        finally:
            process.kill()
            process.wait()


@contextmanager
def _killed_after(process: subprocess.Popen[bytes], delay_s: float) -> Iterator[None]:
    timer = threading.Timer(delay_s, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _exporter_dies(rig: Rig, exporter: str, rng: random.Random, result: Result) -> None:
    """The peer exports and signals. Half of the time a timer kills it, possibly before its first message."""
    device = rig.device
    uuid = device.info.uuid
    with _peer("exporter", {"exporter": exporter, "uuid": None if uuid is None else uuid.hex}) as (sock, process):
        early = rng.random() < 0.5
        with _killed_after(process, rng.uniform(0, 1.0) if early else TIMEOUT_S):
            try:
                message = ipc.receive(sock, timeout_s=TIMEOUT_S)
            except xsem.BadArgumentError as error:
                if error.reason not in ("peer_closed", "truncated_message"):
                    raise
                if not early:
                    raise AssertionError("the exporter ended before it was killed") from error
                result.count("exporters killed before they sent")
                return
            with message:
                drawn, answered = (device.import_semaphore(each) for each in message.semaphores)
                memory = device.import_memory(message.memories[0])
        with _killed_after(process, rng.uniform(0, 0.1)):
            _follow(rig, process, rng, result, drawn, answered, memory)


def _follow(
    rig: Rig, process: subprocess.Popen[bytes], rng: random.Random, result: Result, drawn: xsem.Semaphore,
    answered: xsem.Semaphore, memory: xsem.Memory,
) -> None:
    """Answer the frames of the exporter until it is dead. Then meet the pending waits and release everything."""
    commands, rescuer = rig.device.create_command_list(), rig.device.create_command_list()
    buffer = memory.map_buffer()
    frame = 0
    while True:
        batch = rng.randrange(1, AHEAD)
        for _ in range(batch):
            frame += 1
            commands.append_wait(drawn, frame, acquire=[memory])
            commands.append_fill(buffer, bytes([frame % 256]))
            commands.append_signal(answered, frame, release=[memory])
        if not _done_before_death(commands, process):
            break
        result.count("frames", batch)
    result.count("exporters killed with waits pending")
    early: list[xsem.Semaphore | xsem.Memory | xsem.Buffer] = [buffer, memory, answered]
    rng.shuffle(early)
    for each in early[:rng.randrange(4)]:
        each.release()   # behind the wait: takes effect later, and does not block
    rescuer.append_signal(drawn, OUT_OF_REACH)
    commands.synchronize(timeout_s=TIMEOUT_S)
    for other in (*early, drawn, commands, rescuer):
        other.release()


def _done_before_death(commands: xsem.CommandList, process: subprocess.Popen[bytes]) -> bool:
    """Wait for the list as long as the peer lives. Return whether all of its work is done."""
    while True:
        # Read before the wait: work that the peer signalled before its death is done within the next wait.
        dead = process.poll() is not None
        try:
            commands.synchronize(timeout_s=LOOK_S)
        except xsem.WaitTimeoutError:
            if dead:
                return False
        else:
            return True


def _importer_dies(rig: Rig, device: str, rng: random.Random, result: Result) -> None:
    """The peer imports, and is killed while its waits are pending. The exporter still works."""
    uuid = rig.device.info.uuid
    exporter = rig.exporter
    drawn, answered = exporter.create_semaphore(TIMELINE), exporter.create_semaphore(TIMELINE)
    memory = exporter.create_memory(MEMORY, SIZE)
    with _peer("importer", {"device": device}) as (sock, process):
        with (for_uuid(drawn.export(), exporter, uuid) as first, for_uuid(answered.export(), exporter, uuid) as second,
              for_uuid(memory.export(), exporter, uuid) as third):
            ipc.send(sock, first, second, third)
        frames = rng.randrange(0, 200)
        for frame in range(1, frames + 1):
            drawn.host_signal(frame)
            answered.host_wait(frame, timeout_s=TIMEOUT_S)
        if frames == 0:
            with _killed_after(process, rng.uniform(0, 0.5)):
                process.wait()
            result.count("importers killed while they started")
        else:
            process.kill()
            process.wait()
            result.count("importers killed with waits pending")
    last = drawn.value()
    if last != frames:
        raise AssertionError(f"after the importer's death the timeline reads {last}, signalled was {frames}")
    drawn.host_signal(OUT_OF_REACH)
    drawn.host_wait(OUT_OF_REACH, timeout_s=TIMEOUT_S)
    with drawn.export(for_device=rig.device) as desc, rig.device.import_semaphore(desc) as again:
        commands = rig.device.create_command_list()
        commands.append_wait(again, OUT_OF_REACH)
        commands.synchronize(timeout_s=TIMEOUT_S)
        commands.release()
    for each in (drawn, answered, memory):
        each.release()


def run(rig: Rig, kills: int, device: str, exporter: str) -> Result:
    """Kill this many peers, one in five of them importers, after two of each as a warm-up."""
    result = Result()
    warm = Result()
    rng = rig.random("peers")
    for _ in range(2):
        _exporter_dies(rig, exporter, rng, warm)
        _importer_dies(rig, device, rng, warm)
    before = census.take()
    samples: list[int] = []
    for index in range(kills):
        if index % 5 == 4:
            _importer_dies(rig, device, rng, result)
        else:
            _exporter_dies(rig, exporter, rng, result)
        result.count("kills")
        samples.append(census.rss())
    growth = census.Growth(before, census.take())
    result.more = {"rss_samples": samples, "growth": growth.as_json()}
    result.failures += growth.complaints()
    return result
