"""Semaphores that the device creates: one object with their imports, on the device and on the exporter."""

from __future__ import annotations

from itertools import permutations
from typing import Final

from xsem.types import SemaphoreHandleType
from xsem_conformance.case.case_participant import CaseParticipant, Shared
from xsem_conformance.case.context import NOWHERE, CaseContext, gets_through, value_of
from xsem_conformance.case.participant import Participant
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, Symptom, expect

_IT: Final = Shared(NOWHERE, NOWHERE)
"""The semaphore, for the ends of `_Created`: each of them knows its own number."""


class _Created:
    """A semaphore that the device created, its import on the device and, if possible, its import on the exporter."""

    def __init__(self, context: CaseContext, type: str) -> None:
        here, exporter = context.here, context.exporter
        self._context, self._type = context, type
        self.number, desc = here.create_semaphore(type, None)
        self.ends = [self._end(here, self.number, "the device")]
        about = exporter.about()
        with desc:
            self.ends.append(self._end(here, here.import_semaphore(desc), "an import on the device"))
            same_device = SemaphoreHandleType(type).portable or context.importer_uuid == about["uuid"]
            if same_device and type in about["semaphore_import"]:
                self.ends.append(self._end(exporter, exporter.import_semaphore(desc), "an import on the exporter"))

    def _end(self, side: Participant, number: int, name: str) -> CaseParticipant:
        return CaseParticipant(side, lambda _shared: number, name, self._context.patience_s)

    def on_one_queue(self, first: CaseParticipant, second: CaseParticipant) -> bool:
        """Return whether a wait of one of these ends may stop a signal of the other."""
        return first.side is second.side and first.independent_lists == 1

    def get_through(self, producer: CaseParticipant, consumer: CaseParticipant, value: int) -> None:
        """Check that a signal of one end meets a wait of another, and that each end reads the value."""
        gets_through(producer, consumer, _IT, self._type, value_of(self._type, value),
                     one_queue=self.on_one_queue(producer, consumer))
        for end in self.ends if value_of(self._type) else ():
            context, here = self._context, end.side is self._context.here
            if context.reads(self._type) if here else context.exporter_reads(self._type):
                found = end.value(_IT)
                expect(found == value, f"{producer.name} signalled {value}, and {end.name} reads {found}",
                       Symptom.OTHER_VALUE)

    def release_with_a_pending_wait(self, value: int) -> None:
        """Release the created semaphore behind its wait, and meet the wait through an import."""
        creator, producer = self.ends.pop(0), self.ends[-1]
        wanted = value_of(self._type, value)
        shares = self.on_one_queue(creator, producer)
        waits = creator.new_list()
        signals = waits if shares else producer.new_list()
        early = creator.waits_early(self._type) and not shares
        if not early:
            producer.signal(signals, _IT, wanted)
        creator.wait(waits, _IT, wanted)
        self._context.here.release(self.number)
        if early:
            creator.stays_pending(waits, "a wait for a created and released semaphore")
            producer.signal(signals, _IT, wanted)
        creator.finish(waits, "a wait for a created and released semaphore", Symptom.NOT_MET)
        creator.release(waits)
        if not shares:
            producer.release(signals)
        self._context.let_go()   # some devices have few queues


@check("XSEM-OWN-012")
def created_semaphore_is_one_object_with_its_imports(context: CaseContext, case: Case) -> None:
    """Signal one and wait for another of the semaphore and its imports, in each pair; release the semaphore."""
    # If a wait does not reset a binary semaphore, there is a new one for each pair.
    type = case.handle_type
    repeats = value_of(type) is not None or context.device.capabilities.resets_on_wait
    created, value = _Created(context, type), 0
    for producer, consumer in permutations(range(len(created.ends)), 2):
        if value and not repeats:
            created = _Created(context, type)
        value += 1
        created.get_through(created.ends[producer], created.ends[consumer], value)
    if not repeats:
        created = _Created(context, type)
    created.release_with_a_pending_wait(value + 1)
    if repeats:
        created.get_through(created.ends[0], created.ends[-1], value + 2)
        created.get_through(created.ends[-1], created.ends[0], value + 3)
