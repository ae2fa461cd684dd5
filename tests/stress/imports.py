"""Ten thousand imports and releases: used and unused, released early, late, twice, or dropped."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import Final

import xsem
from stress import census
from stress.rig import BINARY, MEMORY, TIMELINE, Result, Rig
from xsem.types import MemoryDesc, SemaphoreDesc

__all__ = ["run"]

SIZE: Final = 1 << 16
ROUND: Final = 100       # imports between two waits for the list
TIMEOUT_S: Final = 60.0


class _Importer:
    def __init__(self, rig: Rig, result: Result, stack: ExitStack) -> None:
        self.rig = rig
        self.result = result
        self.rng: random.Random = rig.random("imports")
        self.timelines = [rig.exporter.create_semaphore(TIMELINE) for _ in range(4)]
        self.gate = rig.exporter.create_semaphore(TIMELINE)
        self.binary = rig.exporter.create_semaphore(BINARY)
        self.memories = [rig.exporter.create_memory(MEMORY, SIZE) for _ in range(2)]
        self.value = 0
        self.opened = 0

        def exported(each: xsem.Semaphore) -> SemaphoreDesc:
            return stack.enter_context(each.export(for_device=rig.device))

        def memory(each: xsem.Memory) -> MemoryDesc:
            return stack.enter_context(each.export(for_device=rig.device))

        self.timeline_descs = [exported(each) for each in self.timelines]
        self.gate_desc, self.binary_desc = exported(self.gate), exported(self.binary)
        self.memory_descs = [memory(each) for each in self.memories]
        self.probe = rig.device.import_semaphore(self.timeline_descs[0])
        self.commands = rig.device.create_command_list()
        self.kept: list[xsem.Semaphore | xsem.Memory | xsem.Buffer] = []

    def round(self, imports: int) -> None:
        """Make this many imports, at times all of them behind a wait that is met only at the end."""
        device = self.rig.device
        gate = None
        if self.rng.random() < 0.3:
            gate = device.import_semaphore(self.gate_desc)
            self.opened += 1
            self.commands.append_wait(gate, self.opened)
            gate.release()
        for _ in range(imports):
            self.rng.choices((self.semaphore, self.binary_pair, self.memory), (6, 1, 3))[0]()
            self.result.count("imports")
        for each in self.kept:
            each.release()
        self.kept.clear()
        if gate is not None:
            self.result.count("rounds behind an unmet wait")
            self.gate.host_signal(self.opened)
        self.commands.synchronize(timeout_s=TIMEOUT_S)
        if self.rng.random() < 0.2:
            self.commands.release()
            self.commands = device.create_command_list()

    def semaphore(self) -> None:
        index = self.rng.randrange(len(self.timelines))
        sem = self.rig.device.import_semaphore(self.timeline_descs[index])
        if self.rng.random() < 0.7:
            self.value += 1
            self.commands.append_signal(sem, self.value)
            if self.rng.random() < 0.3:
                self.commands.append_wait(sem, self.value)
        self._let_go(sem)

    def binary_pair(self) -> None:
        sem = self.rig.device.import_semaphore(self.binary_desc)
        self.commands.append_signal(sem)
        self.commands.append_wait(sem)
        self._let_go(sem)

    def memory(self) -> None:
        memory = self.rig.device.import_memory(self.rng.choice(self.memory_descs))
        offset = 256 * self.rng.randrange(8)
        buffer = memory.map_buffer(offset, self.rng.randrange(256, SIZE - offset, 4))
        if self.rng.random() < 0.5:
            self.commands.append_fill(buffer, bytes([self.rng.randrange(256)]))
        pair: list[xsem.Memory | xsem.Buffer] = [memory, buffer]
        self.rng.shuffle(pair)
        for each in pair:
            self._let_go(each)

    def _let_go(self, each: xsem.Semaphore | xsem.Memory | xsem.Buffer) -> None:
        how = self.rng.choice(("release", "release twice", "keep", "drop"))
        self.result.count(how)
        if how == "keep":
            self.kept.append(each)
        elif how != "drop":   # dropped: the last reference goes with the caller's frame
            each.release()
            if how == "release twice":
                each.release()


def run(rig: Rig, imports: int) -> Result:
    """Make this many imports, after a tenth as many to warm up."""
    result = Result()
    with ExitStack() as stack:
        importer = _Importer(rig, result, stack)

        def rounds(total: int) -> None:
            for begin in range(0, total, ROUND):
                importer.round(min(ROUND, total - begin))
            # An unused list may have no thread, so the census counts a used list.
            importer.value += 1
            importer.commands.append_signal(importer.probe, importer.value)
            importer.commands.synchronize(timeout_s=TIMEOUT_S)

        rounds(imports // 10)
        result.counts.clear()
        before = census.take()
        samples: list[int] = []
        for part in range(10):
            rounds(imports * (part + 1) // 10 - imports * part // 10)
            samples.append(census.rss())
        growth = census.Growth(before, census.take())
        result.more = {"rss_samples": samples, "growth": growth.as_json()}
        result.failures += growth.complaints()
        if result.counts["imports"] != imports:
            result.failures.append(f"{result.counts['imports']} imports, not {imports}")
        importer.value += 1
        # The remaining objects still work.
        for desc, there in zip(importer.timeline_descs, importer.timelines, strict=True):
            with rig.device.import_semaphore(desc) as sem:
                importer.commands.append_signal(sem, importer.value)
            there.host_wait(importer.value, timeout_s=TIMEOUT_S)
    return result
