"""Measure a ring of frames beside hand-written code with the same timelines and the same memory, in one run.

    python benchmarks/frame_ring.py --device cuda:0 --frames 100000 --json out.json
    tests/drivers/run cuda -- python benchmarks/frame_ring.py --frames 200   # a smoke test on the stand-in

The frames go from this process to others, in order, by 3 slots. The code by hand has a timeline of the written frames,
one of each consumer's read frames, and slots by modulo. It has no payloads, and no one joins, leaves or is killed. On a
device other than `host`, command lists fill and copy the frames, and no host waits for the device, except that it is at
most 6 frames ahead.

- endurance: --frames frames of 4 KiB for each policy, on the host. Each frame is compared. Both processes tell the size
  of their memory, their open descriptors and their threads after each tenth of the frames
- throughput: frames of 8 MiB
- small: frames of 4 KiB, and the round trip of one, which the other process answers through a second ring
- consumers: as many as a ring takes, in 32 processes. They read each frame of 4 KiB on the host

A figure is the median of 9 repetitions, with the 10th and 90th percentile; p50 and p99 are over all round trips. The
time of the CPU, also printed, is the better measure on a shared machine. Exit status 1: a frame was wrong, lost or out
of order, a process has grown, or the deadline passed; 3: a device with timelines in host memory does not exist.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import numpy as np

import xsem
from bench.ring_ways import BY_HAND, HOST_TIMELINE, RING, SLOTS, Work, content, readers, writers
from bench.timing import interleaved, percentiles, rounds
from xsem.ring.message import MOST_CONSUMERS, Policy
from xsem.spi import compiled
from xsem.types import MemoryHandleType

HOST_MEMORY: Final = MemoryHandleType.HOST_MEMORY_FD
SPAWN: Final = multiprocessing.get_context("forkserver")   # of many consumers, each would import NumPy
POLICIES: Final[tuple[Policy, ...]] = ("fifo", "mailbox")
LARGE, SMALL = 8 << 20, 4096
PROCESSES: Final = 32   # of consumers
REPETITIONS: Final = 9
LEAST_RATIO, MOST_MORE_US = 0.97, 10   # goals
NOT_TRIED: Final = 3
DEADLINE_S: Final = 900   # of each part


def consume(
    name: str, size: int, memory_type: MemoryHandleType, messages: list[dict[str, xsem.ipc.Message]], answers: bool,
    pipe: Any
) -> None:
    """Be a consumer of each message: read as many frames as asked for, by the way asked for, and answer each."""
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
    work = Work(xsem.open_device(name), size, memory_type)
    frames, answer = [readers(work, each) for each in messages], writers(work, 1) if answers else {}
    pipe.send({way: each.export(0) for way, each in answer.items()})
    while asked := pipe.recv():
        way, count = asked
        here, writer, began_ns = [each[way] for each in frames], answer.get(way), time.process_time_ns()
        for _ in range(count):
            for reader in here:
                reader.read()
            if writer is not None:
                writer.write()
        work.settle()
        pipe.send((time.perf_counter_ns(), time.process_time_ns() - began_ns))
        for reader in here:
            work.check(reader.number)
    os._exit(0)   # without the releases, which are not measured


class Bench:
    """A producer in this process, and its consumers in others."""

    def __init__(
        self, device: xsem.Device, reads_on: str, size: int, memory_type: MemoryHandleType, consumers: int = 1,
        answers: bool = False,
    ) -> None:
        self._work = Work(device, size, memory_type)
        self._writers = writers(self._work, consumers)
        self._processes, self._pipes = [], []
        each_process = -(-consumers // PROCESSES)
        for first in range(0, consumers, each_process):
            near, far = SPAWN.Pipe()
            messages = [{way: each.export(place) for way, each in self._writers.items()}
                        for place in range(first, min(first + each_process, consumers))]
            process = SPAWN.Process(target=consume, args=(reads_on, size, memory_type, messages, answers, far),
                                    daemon=True)
            process.start()
            far.close()
            for message in [message for both in messages for message in both.values()]:
                message.close()
            self._processes.append(process)
            self._pipes.append(near)
        answering = [pipe.recv() for pipe in self._pipes]   # each has joined
        self._answers = readers(self._work, answering[0]) if answers else {}
        self.cpu_us: dict[str, list[tuple[float, float]]] = {way: [] for way in self._writers}

    def frames(self, count: int, way: str) -> float:
        """Return the microseconds of a frame, until each consumer is done with the last one. Note those of the CPU."""
        write = self._writers[way].write
        self._ask(way, count)
        began_ns, used_ns = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(count):
            write()
        used_ns = time.process_time_ns() - used_ns
        ended_ns, theirs_ns = self._ends()
        self.cpu_us[way].append((used_ns / 1000 / count, theirs_ns / 1000 / count))
        return (ended_ns - began_ns) / 1000 / count

    def trips(self, count: int, way: str) -> list[float]:
        """Return the microseconds of each round trip."""
        write, read, settle, found = self._writers[way].write, self._answers[way].read, self._work.settle, []
        self._ask(way, count)
        for _ in range(count):
            began = time.perf_counter_ns()
            write()
            read()
            settle()
            found.append((time.perf_counter_ns() - began) / 1000)
        self._ends()
        return found

    def _ask(self, way: str, count: int) -> None:
        for pipe in self._pipes:
            pipe.send((way, count))

    def _ends(self) -> tuple[int, int]:
        """Return when the last consumer was done, and the nanoseconds of the CPU in the busiest one."""
        ended, used = zip(*[pipe.recv() for pipe in self._pipes], strict=True)
        return max(ended), max(used)

    def close(self) -> None:
        """End the consumers."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(60)
            if process.exitcode != 0:
                raise ValueError(f"a consumer ended with {process.exitcode}")
        for writer in self._writers.values():
            writer.close()


# ---- parts
def frames(bench: Bench, count: int) -> dict[str, Any]:
    """Return the figures of a frame by each way, and how they compare."""
    ways = interleaved({way: partial(bench.frames, count, way) for way in (RING, BY_HAND)}, REPETITIONS)
    ring, by_hand = ways[RING].median, ways[BY_HAND].median
    used = {way: {"producer": median(mine), "consumer": median(theirs)}
            for way, (mine, theirs) in ((way, zip(*each, strict=True)) for way, each in bench.cpu_us.items())}
    return {"frame_us": {way: asdict(each) for way, each in ways.items()}, "cpu_us": used, "frames_a_repetition": count,
            "throughput_ratio": by_hand / ring, "more_us": ring - by_hand}


def own_memory(device: xsem.Device) -> MemoryHandleType:
    """Return the type of memory that a ring on the device has by default."""
    own = MemoryHandleType.OPAQUE_FD
    return own if own in device.capabilities.memory_export else HOST_MEMORY


def throughput(device: xsem.Device, count: int) -> dict[str, Any]:
    """Measure large frames."""
    few = max(4, min(count // 50, 100 if device.info.backend == "host" else 400))
    with contextlib.closing(Bench(device, device.info.id, LARGE, own_memory(device))) as bench:
        return {"frame_bytes": LARGE, **frames(bench, few)}


def small(device: xsem.Device, count: int) -> dict[str, Any]:
    """Measure small frames, and their round trips."""
    with contextlib.closing(Bench(device, device.info.id, SMALL, own_memory(device))) as bench:
        found = frames(bench, max(4, min(count // 10, 2000)))
    few = max(4, min(count // 10, 200))
    with contextlib.closing(Bench(device, device.info.id, SMALL, own_memory(device), answers=True)) as bench:
        trips = rounds({way: partial(bench.trips, few, way) for way in (RING, BY_HAND)}, REPETITIONS)
    return {"frame_bytes": SMALL, **found,
            "round_trip_us": {way: percentiles([*chain.from_iterable(each)]) for way, each in trips.items()}}


def consumers(device: xsem.Device, count: int) -> dict[str, Any]:
    """Measure many consumers, which read on the host."""
    few = max(4, min(count // 50, 100))
    with contextlib.closing(Bench(device, "host", SMALL, HOST_MEMORY, MOST_CONSUMERS)) as bench:
        found = frames(bench, few)
    return {"frame_bytes": SMALL, "consumers": MOST_CONSUMERS, **found,
            "frames_a_second": {way: 1e6 / each["median"] for way, each in found["frame_us"].items()}}


class Usage(NamedTuple):
    """What a process uses: KiB of memory, open descriptors, threads."""

    rss_kib: int
    descriptors: int
    threads: int

    @classmethod
    def now(cls) -> Usage:
        """Return the usage of this process."""
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return cls(int(status["VmRSS"].split()[0]), len(os.listdir("/proc/self/fd")), int(status["Threads"]))


MOST_GROWTH: Final = Usage(2048, 0, 0)   # after the first tenth


def read_all(policy: Policy, step: int, message: xsem.ipc.Message, pipe: Any) -> None:
    """Be the consumer of the endurance: compare each frame, and send the points."""
    faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
    points, last, read, point = [], 0, 0, step
    with xsem.open_device("host") as device, xsem.FrameRing.open(device, message) as reader:
        pipe.send("joined")
        with contextlib.suppress(xsem.RingEndedError):   # closed, or else the last frame is not the last of all
            while True:
                with reader.read(timeout_s=DEADLINE_S) as frame:
                    number, skipped = frame.number, frame.skipped
                    if (number <= last or (last and skipped != number - last - 1) or (policy == "fifo" and skipped)
                            or frame.payload != number.to_bytes(8, "little")
                            or not (np.asarray(frame) == content(number)).all()):
                        raise ValueError(f"{policy}: frame {number} after frame {last} is wrong, {frame.payload!r}")
                last, read = number, read + 1
                if number >= point:
                    points.append(Usage.now())
                    point += step * ((number - point) // step + 1)
    pipe.send((points, last, read))


def endured(policy: Policy, count: int) -> dict[str, Any]:
    """Send frames for long, and return the points of both processes."""
    step, points = max(1, count // 10), []
    near, far = SPAWN.Pipe()
    with (xsem.open_device("host") as device,
          xsem.FrameRing.create(device, shape=(SMALL,), dtype="uint8", policy=policy, slots=SLOTS) as ring):
        with ring.export() as message:
            process = SPAWN.Process(target=read_all, args=(policy, step, message, far), daemon=True)
            process.start()
        far.close()
        near.recv()
        began = time.perf_counter()
        for number in range(1, count + 1):
            with ring.write(payload=number.to_bytes(8, "little"), timeout_s=DEADLINE_S) as frame:
                np.asarray(frame)[:] = content(number)
            if number % step == 0:
                points.append(Usage.now())
        took_s = time.perf_counter() - began
    other, last, read = near.recv()
    if last != count:
        raise ValueError(f"{policy}: the consumer has read frame {last} of {count} at last")
    grown = {}
    for role, found in (("producer", points), ("consumer", other)):
        grown[role] = Usage(*(max(each) - each[0] for each in zip(*found, strict=True)))
        if any(more > most for more, most in zip(grown[role], MOST_GROWTH, strict=True)):
            raise ValueError(f"{policy}: the {role} has grown by {grown[role]}, and may by {MOST_GROWTH}: {found}")
    return {"frames": count, "read": read, "frames_a_second": count / took_s,
            "points": {"producer": [each._asdict() for each in points], "consumer": [each._asdict() for each in other]},
            "grown": {role: each._asdict() for role, each in grown.items()}}


def endurance(device: xsem.Device, count: int) -> dict[str, Any]:
    """Send small frames for long, by each policy, between two processes on the host."""
    return {policy: endured(policy, count) for policy in POLICIES}


MEASURES: Final[dict[str, Callable[[xsem.Device, int], dict[str, Any]]]] = {
    "endurance": endurance,   # before other parts have left objects in this process
    "throughput": throughput, "small": small, "consumers": consumers,
}


def show(part: str, found: dict[str, Any], took_s: float) -> None:
    """Print the figures of one part."""
    print(f"{part} ({took_s:.1f} s)")
    if part == "endurance":
        for policy, each in found.items():
            print(f"  {policy:<8} {each['frames']} written, {each['read']} read and compared, "
                  f"{each['frames_a_second']:.0f} a second; grown: {each['grown']}")
        return
    for way, each in found["frame_us"].items():
        trip = found.get("round_trip_us", {}).get(way)
        print(f"  {way:<10} {each['median']:9.1f} us a frame ({each['low']:.1f} to {each['high']:.1f}), "
              f"{1e6 / each['median']:.0f} frames a second; CPU of producer and consumer: "
              f"{found['cpu_us'][way]['producer']:.1f} and {found['cpu_us'][way]['consumer']:.1f} us a frame"
              + (f"; round trip p50 {trip['p50']:.1f} us, p99 {trip['p99']:.1f} us" if trip else ""))
    print(f"  throughput, ring / by hand: {found['throughput_ratio']:.3f}"
          + (f" (goal: at least {LEAST_RATIO})" if part == "throughput" else "")
          + f"; {found['more_us']:+.1f} us a frame"
          + (f" (goal: at most {MOST_MORE_US} more)" if part == "small" else ""))


def main() -> int:
    """Measure, print, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--frames", type=int, default=1_000_000,
                        help="of each policy in the endurance; if below 20,000, the other parts have fewer, too")
    parser.add_argument("--parts", nargs="+", choices=MEASURES, default=MEASURES)
    parser.add_argument("--commit", default="", help="of the tree, for the record")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    try:
        device = xsem.open_device(asked.device)
    except xsem.XsemError as error:
        print(f"frame_ring: {error}", file=sys.stderr)
        return NOT_TRIED
    if HOST_TIMELINE not in device.capabilities.semaphore_import:
        print(f"frame_ring: {device.info.id} has no timelines in host memory", file=sys.stderr)
        return NOT_TRIED
    SPAWN.set_forkserver_preload(["numpy", "xsem", "xsem_host.device"])
    found: dict[str, dict[str, Any]] = {}
    try:
        for part in [each for each in MEASURES if each in asked.parts]:
            faulthandler.dump_traceback_later(DEADLINE_S, exit=True)
            began = time.perf_counter()
            found[part] = MEASURES[part](device, asked.frames)
            show(part, found[part], time.perf_counter() - began)
    except (ValueError, OSError, EOFError, xsem.XsemError) as error:   # EOFError: a consumer has ended, and told why
        print(f"frame_ring: {type(error).__name__}: {error}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(1)   # work of the device may wait for ever
    if asked.json is not None:
        asked.json.write_text(json.dumps({
            "schema": 1, "commit": asked.commit, "device": device.info.id, "name": device.info.name,
            "driver": device.info.driver_version, "cores": os.cpu_count(), "compiled": compiled(), **found,
        }, indent=1) + "\n")
    sys.stdout.flush()
    os._exit(0)   # the objects of the run end with the process


if __name__ == "__main__":
    raise SystemExit(main())
