"""Recorded work: the time of its execution, and its values."""

from __future__ import annotations

import functools
import time

from xsem.types import SemaphoreKind
from xsem_conformance.case import measures
from xsem_conformance.case.context import IN, CaseContext
from xsem_conformance.case.other_thread import on_another_thread
from xsem_conformance.case.polling import SETTLE_S
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, Symptom, expect


@check("XSEM-ORD-008")
def recorded_work_runs_in_replays_with_their_values(context: CaseContext, case: Case) -> None:
    """A recorded wait, signal and fill run only in a replay, with the values of the replay."""
    # One recording uses two timelines, and another thread makes its last replay. The second one is on the same list,
    # and is released without a replay before this last replay. The third copies and fills memory between its wait and
    # its signal. The fourth uses one timeline, with a pair of values to wait for and to signal.
    type = context.some_type(SemaphoreKind.TIMELINE)
    _, device = context.ends(IN)
    gate, after = context.semaphore(type), context.semaphore(type)
    commands = context.device.create_command_list()
    with commands.record() as recording:
        commands.append_wait(context.here.get(gate.here), 1)
        commands.append_signal(context.here.get(after.here), 1)
    spare = context.semaphore(type)
    with commands.record() as unused:
        commands.append_signal(context.here.get(spare.here), 1)
    context.exporter.host_signal(gate.there, 1)
    waits = device.new_list()
    early = context.device.capabilities.independent_lists >= 2   # else a waiting list stops the list of the replays
    if early:
        device.wait(waits, after, 1)
        device.stays_pending(waits, "a wait for a recorded signal without a replay")
    wide = context.wide_step(type)
    for turn, (awaited, signalled) in enumerate(((5, 7), (11, 13), (wide + 3, wide + 5))):
        replay = functools.partial(
            recording.replay, {context.here.get(gate.here): awaited, context.here.get(after.here): signalled})
        if turn < 2:
            replay()
        else:
            unused.release()
            context.let_go()
            on_another_thread(replay, context.patience_s, "a replay on another thread does not return")
        if turn or not early:
            device.wait(waits, after, signalled)
        device.stays_pending(waits, f"a wait for a replay that waits for {awaited}")
        context.exporter.host_signal(gate.there, awaited)
        device.finish(waits, f"a wait for the replay's signal of {signalled}")
        device.wait(waits, after, signalled)
        device.finish(waits, f"a wait for {signalled}")
        if context.exporter_reads(type):
            found = context.exporter.value(after.there)
            expect(found == signalled, f"a replay was to signal {signalled}, and the timeline is at {found}",
                   Symptom.OTHER_VALUE)
    time.sleep(SETTLE_S)
    commands.synchronize(timeout_s=context.patience_s)
    if context.exporter_reads(type):
        expect(context.exporter.value(spare.there) == 0, "a recording without a replay signals")
    recording.release()
    if context.device.capabilities.memory_import and context.exported_memories():
        _recorded_fill_runs_in_its_turn(context, type)
    turns = context.semaphore(type)
    both = context.here.get(turns.here)
    with commands.record() as recording:
        commands.append_wait(both, 1)
        commands.append_signal(both, 2)
    for awaited, signalled in ((3, 5), (6, 9)):
        recording.replay({both: (awaited, signalled)})
        device.wait(waits, turns, signalled)
        device.stays_pending(waits, f"a wait for a replay that waits for {awaited} of the timeline that it signals")
        context.exporter.host_signal(turns.there, awaited)
        device.finish(waits, f"a wait for the replay's signal of {signalled} on the timeline that it waits for")
    commands.synchronize(timeout_s=context.patience_s)
    recording.release()


def _recorded_fill_runs_in_its_turn(context: CaseContext, type: str) -> None:
    """Record a wait, a copy, a fill and a signal: the bytes change behind the wait and before the signal."""
    # The copy takes the bytes from before the fill, so each replay runs once.
    producer, device = context.ends(IN)
    gate, after, memory = context.semaphore(type), context.semaphore(type), context.memory()
    commands, puts, waits = context.device.create_command_list(), producer.new_list(), device.new_list()
    view, copied = (context.here.mapping(memory.here).view((256,), "uint8", offset=offset) for offset in (0, 1024))
    with commands.record() as recording:
        commands.append_wait(context.here.get(gate.here), 1)
        commands.append_copy(copied, view)
        commands.append_fill(view, b"\x5a")
        commands.append_signal(context.here.get(after.here), 1)
    for value in (1, 2):
        producer.write(puts, memory, b"\x11" * 256)
        producer.finish(puts, "a copy")
        recording.replay({context.here.get(gate.here): value, context.here.get(after.here): value})
        device.wait(waits, after, value)
        device.stays_pending(waits, "a wait for a replay behind its own wait")
        expect(measures.read_there(context, memory, 256) == b"\x11" * 256,
               "a recorded fill ran before the wait of its replay")
        context.exporter.host_signal(gate.there, value)
        device.finish(waits, "a wait for the replay's signal")
        expect(measures.read_there(context, memory, 256) == b"\x5a" * 256, "a recorded fill is not done at its signal",
               Symptom.OTHER_BYTES)
        commands.synchronize(timeout_s=context.patience_s)
        expect(measures.read_there(context, memory, 256, 1024) == b"\x11" * 256,
               "a replay did not copy the bytes from before its fill", Symptom.OTHER_BYTES)
    recording.release()
