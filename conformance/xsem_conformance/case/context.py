"""The context of a check: the device under test, the exporter in its own process, and objects that both share."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import xsem
from xsem.plugins import registry
from xsem.spi import Token
from xsem.types import Feature, MemoryDesc, MemoryHandleType, SemaphoreDesc, SemaphoreHandleType, SemaphoreKind
from xsem_conformance.case.case_participant import CaseParticipant, Shared
from xsem_conformance.case.direct import AbleDriver, close_host_objects, duplicate
from xsem_conformance.case.participant import LocalParticipant
from xsem_conformance.case.polling import PATIENCE_S
from xsem_conformance.case.remote_participant import ParticipantFailedError, RemoteParticipant, SecondFailedError
from xsem_conformance.expressions import HandleType
from xsem_conformance.outcomes import (
    BlockedError,
    BrokenError,
    Case,
    NotDeclaredError,
    NotExaminedError,
    Symptom,
    expect,
)

__all__ = ["IN", "NOWHERE", "OUT", "CaseContext", "bytes_arrive", "gets_through", "value_of"]

IN: Final = "in"
"""Direction: the exporter produces, the device consumes."""
OUT: Final = "out"
"""Direction: the device produces, the exporter consumes."""

MEMORY_SIZE: Final = 1 << 16
NOWHERE: Final = 0
"""The number for "no object": numbers of objects start at 1."""
_LARGEST_PORTABLE: Final = 2**63 - 1
"""Largest difference of two values of a portable timeline."""
_END_S: Final = 3.0
"""Minimum time for an idle process to exit, independent of the patience."""


class CaseContext:
    """One device and one exporter, used by all checks in turn. The exporter's process starts at its first use."""

    def __init__(
        self, device: str, exporter: str, patience_s: float = PATIENCE_S, *, portable: bool = False
    ) -> None:
        self.patience_s = patience_s
        self._portable = portable   # the exporter may be another device, so only the objects of the host are shared
        self.device = xsem.open_device(device)
        self.here = LocalParticipant(self.device, lambda size: self.memory(size).here)
        self._exporter_id = exporter
        self._exporter: RemoteParticipant | None = None
        self._second: RemoteParticipant | None = None
        self._about: dict[str, Any] = {}
        self._driver: AbleDriver | None = None
        self._frees = True
        uuid = self.device.info.uuid
        self.importer_uuid = None if uuid is None else uuid.hex

    @property
    def exporter(self) -> RemoteParticipant:
        """The exporter's process."""
        if self._exporter is None:
            exporter = RemoteParticipant(self._exporter_id)
            try:
                self._about = exporter.about()
            except ParticipantFailedError as error:
                exporter.close()
                raise BlockedError(f"the exporter {self._exporter_id} cannot be opened: {error}") from error
            self._exporter = exporter
        return self._exporter

    def kill_exporter(self) -> None:
        """Kill the exporter's process immediately; the next use starts another process."""
        self.exporter.kill()
        self._close_exporter()

    def end_exporter(self) -> None:
        """Ask the exporter's process to exit by itself; the next use starts another process."""
        ended = self.exporter.ends(max(self.patience_s, _END_S))
        self._close_exporter()
        if not ended:
            raise BlockedError(f"the exporter {self._exporter_id} does not end by itself")

    def _close_exporter(self) -> None:
        if self._exporter is not None:
            self._exporter.close()
            self._exporter = None

    @property
    def second(self) -> RemoteParticipant:
        """A second process with the device open. A failure of it is a failure of the device under test."""
        if self._second is None:
            self._second = RemoteParticipant(self.device.info.id, "second process", SecondFailedError)
        return self._second

    def kill_second(self) -> None:
        """Kill the second process immediately; the next use starts another process."""
        if self._second is not None:
            self._second.kill()
            self._second.close()
            self._second = None

    def second_ends(self) -> bool:
        """Ask the second process to exit by itself; return whether it did. The next use starts another process."""
        ended = self.second.ends(max(self.patience_s, _END_S))
        self.kill_second()
        return ended

    @property
    def driver(self) -> AbleDriver:
        """A driver of the device, opened through its backend, for direct calls."""
        # The driver has the abilities that the capabilities declare, because xsem has checked the driver of this
        # device.
        if self._driver is None:
            info = self.device.info
            self._driver = cast("AbleDriver", registry().get(info.backend).open(info.index))
        return self._driver

    def hook(self, name: str, *args: object) -> Any:
        """Call a hook of the backend for `driver`, and return the result of the hook; see `SuiteHooks`."""
        made = getattr(registry().get(self.device.info.backend).suite_hooks(self.driver), name)(*args)
        if made is None:
            raise NotExaminedError(
                f"the backend {self.device.info.backend} does not implement the hook {name}()")
        return made

    # ---- shared objects
    def semaphore(self, type: str, initial_value: int = 0) -> Shared:
        """Create a semaphore in the exporter and import it on the device; BLOCKED if the exporter has no such type."""
        exporter = self.exporter
        if type not in self.exported_semaphores():
            raise BlockedError(f"{self._about['id']} exports no semaphore of type {type}")
        there, desc = exporter.create_semaphore(type, self.importer_uuid, initial_value)
        with desc:
            return Shared(self.here.import_semaphore(desc), there)

    def repeats(self, consumer: CaseParticipant, type: str) -> bool:
        """Return whether a consumer may wait repeatedly for one semaphore of a type."""
        kind = SemaphoreHandleType(type).kind
        if kind is SemaphoreKind.BINARY:
            return consumer.side is not self.here or self.device.capabilities.resets_on_wait
        return kind is SemaphoreKind.TIMELINE

    def exported_semaphores(self) -> list[str]:
        """Return the semaphore types that the exporter creates for the device. The portable types are the last."""
        return self._exported(SemaphoreHandleType(each) for each in self.exporter.about()["semaphore_export"])

    def exported_memories(self) -> list[str]:
        """Return the memory types that the exporter creates for the device. The portable types are the last."""
        return self._exported(MemoryHandleType(each) for each in self.exporter.about()["memory_export"])

    def _exported(self, made: Iterable[HandleType]) -> list[str]:
        return [each.value for each in sorted(made, key=lambda each: (each.portable, each.value))
                if each.portable or not self._portable]

    def exporter_reads(self, type: str) -> bool:
        """Return whether the exporter reads the value of a timeline of that type."""
        return SemaphoreHandleType(type).portable or Feature.READ_VALUE.value in self.exporter.about()["features"]

    def reads(self, type: str) -> bool:
        """Return whether the device reads the value of a timeline of that type."""
        return SemaphoreHandleType(type).portable or Feature.READ_VALUE in self.device.capabilities.features

    def largest_difference(self, type: str) -> int:
        """Return the largest difference of two values that both sides allow."""
        if SemaphoreHandleType(type).portable:
            return _LARGEST_PORTABLE
        return min(self.device.capabilities.max_value_difference, int(self.exporter.about()["max_value_difference"]))

    def wide_step(self, type: str) -> int:
        """Return a distance of values. The distance needs more than 32 bits if both sides allow such a distance."""
        return min(2**33, self.largest_difference(type) // 2)

    def shared_types(self, kind: SemaphoreKind | None = None) -> list[str]:
        """Return the semaphore types of that kind that the exporter creates and the device imports, at least one."""
        # A type that allows a wait before its signal comes first, and a portable type last, because a driver has more
        # to do for the others. Sync files are excluded: each stands for one signal.
        made, declared = self.exported_semaphores(), self.device.capabilities
        both = sorted((each for each in declared.semaphore_import
                       if each.value in made and each.kind is not SemaphoreKind.SYNC_FILE
                       and kind in (None, each.kind)),
                      key=lambda each: (each.portable, each not in declared.wait_before_signal, each.value))
        if not both:
            raise BlockedError(f"{self._about['id']} makes no {'' if kind is None else kind.value + ' '}semaphore that "
                               f"{self.device.info.id} imports")
        return [each.value for each in both]

    def early_types(self) -> list[str]:
        """Return the types of `shared_types` that allow a wait before its signal, at least one."""
        early = [each for each in self.shared_types()
                 if SemaphoreHandleType(each) in self.device.capabilities.wait_before_signal]
        if not early:
            raise BlockedError(f"{self._about['id']} makes no semaphore for which {self.device.info.id} waits before "
                               "its signal")
        return early

    def some_type(self, kind: SemaphoreKind | None = None) -> str:
        """Return the first type of `shared_types`."""
        return self.shared_types(kind)[0]

    def driver_types(self, kind: SemaphoreKind | None = None) -> list[str]:
        """Return the types of `shared_types` whose semaphores are of the driver itself, at least one."""
        types = [each for each in self.shared_types(kind)
                 if SemaphoreHandleType(each) not in self.device.capabilities.bridged]
        if not types:
            raise NotDeclaredError("the driver itself has no semaphores: xsem bridges those of the device")
        return types

    def driver_type(self, kind: SemaphoreKind | None = None) -> str:
        """Return the first type of `driver_types`."""
        return self.driver_types(kind)[0]

    def gate(self, producer: CaseParticipant) -> tuple[Shared, int | None]:
        """Return a semaphore and a value that block `producer` in a wait until the exporter's host signals them."""
        made = [SemaphoreHandleType(each) for each in self.exported_semaphores()]
        known = self.device.capabilities.semaphore_import if producer.side is self.here else frozenset(made)
        early = sorted((each for each in made if each in known and producer.waits_early(each.value)),
                       key=lambda each: (each.portable, each.kind is not SemaphoreKind.TIMELINE, each.value))
        if not early:
            raise BlockedError(f"nothing can hold {producer.name} back: it allows no wait before its signal")
        type = early[0].value
        if producer.side is self.here:
            return self.semaphore(type), value_of(type)
        there, desc = self.exporter.create_semaphore(type, None)
        desc.close()
        return Shared(NOWHERE, there), value_of(type)

    def shared_memories(self) -> list[str]:
        """Return the memory types that the exporter creates and the device imports, at least one."""
        known = {each.value for each in self.device.capabilities.memory_import}
        both = [each for each in self.exported_memories() if each in known]
        if not both:
            raise BlockedError(f"{self._about['id']} exports no memory that {self.device.info.id} imports")
        return both

    def memory(self, size: int = MEMORY_SIZE, type: str | None = None) -> Shared:
        """Create memory in the exporter and import it on the device; its first 4,096 bytes are zero."""
        exporter = self.exporter
        if type is None:
            type = self.shared_memories()[0]
        elif type not in self.exported_memories():
            raise BlockedError(f"{self._about['id']} exports no memory of type {type}")
        there, desc = exporter.create_memory(type, size, self.importer_uuid)
        with desc:
            shared = Shared(self.here.import_memory(desc), there)
        commands = exporter.new_list()
        exporter.write(commands, there, 0, base64.b64encode(bytes(min(size, 4096))).decode())
        exporter.synchronize(commands, self.patience_s)
        exporter.release(commands)   # some exporters have few queues
        return shared

    def object_of(self, case: Case) -> Shared:
        """Create a semaphore or memory of the kind and type of a case in the exporter, and import it on the device."""
        if case.kind == "memory":
            return self.memory(type=case.handle_type)
        return self.semaphore(case.handle_type)

    def exported(self, case: Case, shared: Shared) -> SemaphoreDesc | MemoryDesc:
        """Export an object of `object_of` again for the device. The caller closes the descriptor."""
        export = self.exporter.export_memory if case.kind == "memory" else self.exporter.export_semaphore
        return export(shared.there, self.importer_uuid)

    def driver_semaphore(self, shared: Shared) -> Token:
        """Import the exporter's semaphore once more, through `driver`; the caller releases the token there."""
        with self.exporter.export_semaphore(shared.there, self.importer_uuid) as desc, duplicate(desc) as given:
            return given.imported_by(self.driver, desc)

    def driver_memory(self, shared: Shared) -> Token:
        """Import the exporter's memory once more, through `driver`; the caller releases the token there."""
        with self.exporter.export_memory(shared.there, self.importer_uuid) as desc, duplicate(desc) as given:
            return given.imported_by(self.driver, desc)

    def arrives(self, shared: Shared, value: int | None) -> None:
        """Check that the exporter's host sees the device's signal."""
        try:
            self.exporter.host_wait(shared.there, value, self.patience_s)
        except ParticipantFailedError as error:
            if error.reason != "timeout":
                raise
            raise BrokenError(f"the device's signal does not reach the exporter: {error}",
                              symptom=Symptom.NOT_MET, side="exporter") from error

    def second_end(self, shared: Shared) -> CaseParticipant:
        """Import the semaphore in the second process; return that process as a side, for this semaphore only."""
        with self.exporter.export_semaphore(shared.there, self.importer_uuid) as desc:
            number = self.second.import_semaphore(desc)
        return CaseParticipant(self.second, lambda _shared: number, "the second process", self.patience_s)

    def ends(self, direction: str, least_s: float = 0.0) -> tuple[CaseParticipant, CaseParticipant]:
        """Return the producer and the consumer of a direction, `IN` or `OUT`. Their patience is at least `least_s`."""
        patience_s = max(self.patience_s, least_s)
        device = CaseParticipant(self.here, lambda shared: shared.here, "device", patience_s)
        exporter = CaseParticipant(self.exporter, lambda shared: shared.there, "exporter", patience_s)
        return (exporter, device) if direction == IN else (device, exporter)

    @contextmanager
    def fresh(self) -> Iterator[None]:
        """Enclose one check; at its end release the objects that the check left."""
        try:
            yield
        finally:
            self.here.forget()
            self.let_go()
            close_host_objects()
            for each, kill in ((self._exporter, self.kill_exporter), (self._second, self.kill_second)):
                if each is not None:
                    try:
                        each.forget()
                    except ParticipantFailedError:
                        kill()

    def let_go(self, limit_s: float | None = None) -> None:
        """Wait until the objects released here are freed, at most `limit_s` seconds. The default is the patience."""
        # xsem does not know the waits that a check appends through `driver`. A free that is still running on xsem's
        # release thread would block behind such a wait, and would block the signal of that check as well.
        deadline = time.monotonic() + (self.patience_s if limit_s is None else limit_s)
        while self._frees and self.device.releasing() and time.monotonic() < deadline:
            time.sleep(0.001)

    def expect_no_frees(self) -> None:
        """Let `let_go` return at once: after a refused call, the objects of the case are never free."""
        self._frees = False

    def close(self) -> None:
        """End the exporter's process and the second process, and close the device."""
        self._close_exporter()
        if self._second is not None:
            self._second.close()
            self._second = None
        self.device.release()
        if self._driver is not None:
            self._driver.close()
            self._driver = None


def value_of(type: str, value: int = 1) -> int | None:
    """Return `value` for a timeline type, and None for any other type."""
    return value if SemaphoreHandleType(type).kind is SemaphoreKind.TIMELINE else None


def gets_through(
    producer: CaseParticipant, consumer: CaseParticipant, shared: Shared, type: str, value: int | None, *,
    one_queue: bool = False,
) -> None:
    """Check that a signal of the producer meets a wait of the consumer."""
    # If the consumer may wait before the signal, the wait is appended first and observed pending. With `one_queue`,
    # both have the same native queue, where a wait before its signal would stall it. Then one device has one list.
    waits = consumer.new_list()
    shares = one_queue and producer.side is consumer.side
    signals = waits if shares else producer.new_list()
    early = consumer.waits_early(type) and not one_queue
    if early:
        consumer.wait(waits, shared, value)
        consumer.stays_pending(waits, "a wait")
    producer.signal(signals, shared, value)
    if not early:
        consumer.wait(waits, shared, value)
    consumer.finish(waits, f"a wait for the signal of {producer.name}", Symptom.NOT_MET)
    producer.finish(signals, "a signal")
    consumer.release(waits)
    if not shares:
        producer.release(signals)


def bytes_arrive(
    producer: CaseParticipant, consumer: CaseParticipant, memory: Shared, data: bytes, offset: int = 0
) -> None:
    """Check that the consumer reads the bytes that the producer has written."""
    writes, reads = producer.new_list(), consumer.new_list()
    producer.write(writes, memory, data, offset)
    producer.finish(writes, "a copy")
    reading = consumer.read(reads, memory, len(data), offset)
    consumer.finish(reads, "a copy")
    expect(consumer.fetch(reading) == data, f"{consumer.name} reads other bytes than {producer.name} wrote",
           Symptom.OTHER_BYTES)
    for end, commands in ((producer, writes), (consumer, reads)):
        end.release(commands)
