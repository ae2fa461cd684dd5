"""A million signals and waits: 64 semaphores, 8 threads with a list each, all threads waiting for each other.

A wait names a value whose signal is appended, or a value that the host signals later (a gate). So the work can end
with any number of driver queues: only eight lists run side by side.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from typing import Final

from stress import census
from stress.rig import BINARY, TIMELINE, Result, Rig

__all__ = ["run"]

THREADS: Final = 8
TIMELINES: Final = 6     # of each thread; only this thread signals them
BINARIES: Final = 2
BEHIND_A_GATE: Final = 40
# Appends before a thread waits for its list, of two semaphores each on average. This is far below the limit of 1,020
# operations behind a wait, even if each semaphore of a batch counts.
UNSEEN: Final = 150
TIMEOUT_S: Final = 60.0
_LOOK_S: Final = 0.25


class Field:
    """All semaphores, and the last appended value of each timeline."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.timelines = [rig.shared(TIMELINE, f"timeline {index}") for index in range(THREADS * TIMELINES)]
        self.binaries = [rig.shared(BINARY, f"binary {index}") for index in range(THREADS * BINARIES)]
        self.gates = [rig.shared(TIMELINE, f"gate {index}") for index in range(THREADS)]
        self.lists = [rig.device.create_command_list() for _ in range(THREADS)]
        # The owner writes after its append has returned, so other threads may wait for a value that they read here.
        self.submitted = [0] * len(self.timelines)
        self.opened = [0] * THREADS
        self.stop = threading.Event()
        self.failures: list[str] = []
        self.progress = [0] * THREADS


class Worker:
    """The work of one thread."""

    def __init__(self, field: Field, index: int, round_: str) -> None:
        self.field = field
        self.index = index
        self.rng = field.rig.random("signals", round_, index)
        self.commands = field.lists[index]
        self.done = field.rig.device.create_event()
        self.own = range(index * TIMELINES, (index + 1) * TIMELINES)
        self.awaited: dict[int, int] = {}
        self.counts: dict[str, int] = {}
        self.unseen = 0
        self.gate_shut = 0

    def work(self, operations: int) -> None:
        """Append this many operations, then wait until all are done."""
        ways = (self.signal, self.wait, self.binary, self.gate)
        try:
            while sum(self.counts.values()) < operations and not self.field.stop.is_set():
                self.rng.choices(ways, (45, 40, 14, 1))[0]()
                self.field.progress[self.index] = sum(self.counts.values())
                if self.gate_shut and self.unseen - self.gate_shut >= BEHIND_A_GATE:
                    self.open_gate()
                if self.unseen >= UNSEEN:
                    self.see()
            self.see()
        except Exception:
            self.field.failures.append(f"thread {self.index}: {traceback.format_exc()}")
            self.field.stop.set()
            self.open_gate()   # the others wait for the work behind it

    def _appended(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        self.unseen += 1

    def signal(self) -> None:
        """Signal one timeline of this thread, or a batch of them."""
        chosen = self.rng.sample(self.own, self.rng.choice((1, 1, 1, 2, TIMELINES)))
        values = [self.field.submitted[each] + self.rng.choice((1, 1, 3)) for each in chosen]
        semaphores = [self.field.timelines[each][1] for each in chosen]
        if len(chosen) == 1:
            self.commands.append_signal(semaphores[0], values[0])
        else:
            self.commands.append_signal(semaphores, values)
        self._appended("signals")
        for each, value in zip(chosen, values, strict=True):
            self.field.submitted[each] = value

    def wait(self) -> None:
        """Wait for timelines of any thread."""
        chosen = self.rng.sample(range(len(self.field.timelines)), self.rng.choice((1, 1, 1, 2, 8)))
        wanted = [(each, self.field.submitted[each]) for each in chosen if self.field.submitted[each]]
        if not wanted:
            return
        self.commands.append_wait([self.field.timelines[each][1] for each, _ in wanted], [value for _, value in wanted])
        self._appended("waits")
        self.awaited.update(wanted)

    def binary(self) -> None:
        """Append a signal and the wait that takes it."""
        semaphore = self.field.binaries[self.index * BINARIES + self.rng.randrange(BINARIES)][1]
        self.commands.append_signal(semaphore)
        self._appended("signals")
        self.commands.append_wait(semaphore)
        self._appended("waits")

    def gate(self) -> None:
        """Block the list until `BEHIND_A_GATE` more operations are behind the gate."""
        if self.gate_shut:
            return
        self.field.opened[self.index] += 1
        self.commands.append_wait(self.field.gates[self.index][1], self.field.opened[self.index])
        self._appended("waits")
        self.counts["gates"] = self.counts.get("gates", 0)   # counted where they are opened
        self.gate_shut = self.unseen

    def open_gate(self) -> None:
        """Unblock the list."""
        if self.gate_shut:
            self.field.gates[self.index][0].host_signal(self.field.opened[self.index])
            self.gate_shut = 0

    def see(self) -> None:
        """Wait for the list, in one of two ways. All values that it waited for must be reached."""
        self.open_gate()
        if self.rng.random() < 0.5:
            self.commands.append_barrier(signal_event=self.done)
            self.done.wait(timeout_s=TIMEOUT_S)
            self.done.reset()
        else:
            self.commands.synchronize(timeout_s=TIMEOUT_S)
        for each, value in self.awaited.items():
            found = self.field.timelines[each][0].value()
            if found < value:
                raise AssertionError(f"a wait for {value} was passed with the timeline at {found}")
        self.awaited.clear()
        self.unseen = 0


def _round(field: Field, name: str, operations: int, watch: Callable[[], None]) -> dict[str, int]:
    workers = [Worker(field, index, name) for index in range(THREADS)]
    threads = [threading.Thread(target=each.work, args=(operations // THREADS,)) for each in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        while thread.is_alive():
            thread.join(_LOOK_S)
            watch()
    for each in workers:
        each.done.release()
    counts = {what: sum(each.counts.get(what, 0) for each in workers) for what in ("signals", "waits")}
    counts["operations"] = counts["signals"] + counts["waits"]
    return counts


def run(rig: Rig, operations: int) -> Result:
    """Make this many appends, after a tenth as many to warm up."""
    result = Result()
    field = Field(rig)
    _round(field, "warm-up", operations // 10, lambda: None)
    before = census.take()
    samples: list[int] = []

    def watch() -> None:
        # Ten samples during the run: a leak grows steadily.
        if sum(field.progress) * 10 >= len(samples) * operations:
            samples.append(census.rss())

    field.progress = [0] * THREADS
    began = time.monotonic()
    result.counts = _round(field, "measured", operations, watch)
    result.more["seconds"] = round(time.monotonic() - began, 2)
    growth = census.Growth(before, census.take())
    result.more |= {"semaphores": len(field.timelines) + len(field.binaries), "threads": THREADS,
                    "rss_samples": samples, "growth": growth.as_json()}
    result.failures = field.failures + growth.complaints()
    if not field.failures:
        _check_end(field, result, operations)
    return result


def _check_end(field: Field, result: Result, operations: int) -> None:
    if result.counts["operations"] < operations:
        result.failures.append(f"{result.counts['operations']} operations were appended, not {operations}")
    found = [there.value() for there, _ in field.timelines]
    if found != field.submitted:
        result.failures.append(f"timelines ended at {found}, signalled were {field.submitted}")
    pending = field.rig.device.pending()
    if pending:
        result.failures.append(f"pending at the end: {pending}")
