"""Recorded work: the time of its execution, and its values."""

from __future__ import annotations

import threading

from xsem.types import Feature, SemaphoreKind
from xsem_conformance.case import measures
from xsem_conformance.case.context import IN, CaseContext
from xsem_conformance.case.polling import SETTLE_S
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, expect


@check("XSEM-ORD-008")
def recorded_work_runs_in_replays_with_their_values(context: CaseContext, case: Case) -> None:
    """A recorded wait, signal and fill run only in a replay, with the values of the replay.

    One recording uses two timelines. The other uses one timeline, with a pair of values to wait for and to signal. The
    third fills memory between its wait and its signal.
    """
    type = context.some_type(SemaphoreKind.TIMELINE)
    _, device = context.ends(IN)
    gate, after = context.semaphore(type), context.semaphore(type)
    commands = context.device.create_command_list()
    with commands.record() as recording:
        commands.append_wait(context.here.get(gate.here), 1)
        commands.append_signal(context.here.get(after.here), 1)
    context.peer.host_signal(gate.there, 1)
    waits = device.new_list()
    device.wait(waits, after, 1)
    device.stays_pending(waits, "a wait for a recorded signal without a replay")
    for turn, (awaited, signalled) in enumerate(((5, 7), (11, 13))):
        recording.replay({context.here.get(gate.here): awaited, context.here.get(after.here): signalled})
        if turn:
            device.wait(waits, after, signalled)
        device.stays_pending(waits, f"a wait for a replay that waits for {awaited}")
        context.peer.host_signal(gate.there, awaited)
        device.finish(waits, f"a wait for the replay's signal of {signalled}")
        device.wait(waits, after, signalled)
        device.finish(waits, f"a wait for {signalled}")
        if Feature.READ_VALUE.value in context.peer.about()["features"]:
            found = context.peer.value(after.there)
            expect(found == signalled, f"a replay was to signal {signalled}, and the timeline is at {found}")
    threading.Event().wait(SETTLE_S)
    commands.synchronize(timeout_s=context.patience_s)
    recording.release()
    if context.device.capabilities.memory_import and context.peer.about()["memory_export"]:
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
        context.peer.host_signal(turns.there, awaited)
        device.finish(waits, f"a wait for the replay's signal of {signalled} on the timeline that it waits for")
    commands.synchronize(timeout_s=context.patience_s)
    recording.release()


def _recorded_fill_runs_in_its_turn(context: CaseContext, type: str) -> None:
    """Record a wait, a fill and a signal; replay twice: the bytes change behind the wait and before the signal."""
    producer, device = context.ends(IN)
    gate, after, memory = context.semaphore(type), context.semaphore(type), context.memory()
    commands, puts, waits = context.device.create_command_list(), producer.new_list(), device.new_list()
    view = context.here.mapping(memory.here).view((256,), "uint8")
    with commands.record() as recording:
        commands.append_wait(context.here.get(gate.here), 1)
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
        context.peer.host_signal(gate.there, value)
        device.finish(waits, "a wait for the replay's signal")
        expect(measures.read_there(context, memory, 256) == b"\x5a" * 256, "a recorded fill is not done at its signal")
    commands.synchronize(timeout_s=context.patience_s)
    recording.release()
