"""Recorded work: the time of its execution, and its values."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Sequence
from typing import Final

import xsem
from xsem.errors import UnsupportedError
from xsem.types import Feature, MemoryHandleType
from xsem_conformance.case import measures
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext
from xsem_conformance.case.noise import noise
from xsem_conformance.case.other_thread import on_another_thread
from xsem_conformance.case.polling import SETTLE_S
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, Symptom, expect
from xsem_conformance.suite.images import IMAGE_MEMORY, PITCHES, PLAIN

_OWN_VALUES: Final = ((20, 10), (20, 30, 10))
"""The values that each batch waits for. In the reverse order, they are the values that it signals."""


@check("XSEM-ORD-008")
def recorded_work_runs_in_replays_with_their_values(context: CaseContext, case: Case) -> None:
    """A recorded wait, signal and fill run only in a replay, with the values of the replay."""
    # One recording uses two timelines, and another thread makes its last replay. The second one is on the same list,
    # and is released without a replay before this last replay. The third copies and fills memory between its wait and
    # its signal. The fourth uses one timeline, with a pair of values to wait for and to signal. Then come batches, an
    # empty recording and, if the device copies images, a recording of such copies.
    type = case.handle_type
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
    context.here.release(waits)   # some devices have few queues
    commands.release()
    for values in _OWN_VALUES:
        _recorded_batch_needs_all(context, type, values)
    _empty_recording_changes_nothing(context, type)
    _recorded_image_copies_run_in_their_turn(context, type)


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


# ---- batches
def _recorded_batch_needs_all(context: CaseContext, type: str, values: Sequence[int]) -> None:
    """Record a wait for several timelines and a signal of several: a replay is pending while one is below its value."""
    _, device = context.ends(IN)
    awaited, signalled = ([context.semaphore(type) for _ in values] for _ in range(2))
    number = device.new_list()
    commands = context.here.get(number)
    with commands.record() as recording:
        commands.append_wait([context.here.get(each.here) for each in awaited], [1] * len(values))
        commands.append_signal([context.here.get(each.here) for each in signalled], [1] * len(values))
    for missing in range(len(values)):
        waits = dict(zip(awaited, (100 * missing + each for each in values), strict=True))
        signals = dict(zip(signalled, reversed(waits.values()), strict=True))
        recording.replay({context.here.get(each.here): value for each, value in (waits | signals).items()})
        for index, (each, value) in enumerate(waits.items()):
            context.exporter.host_signal(each.there, value - (index == missing))
        device.stays_pending(number, f"a replay that waits for {len(values)} timelines, with number {missing + 1} one "
                             "below its value,")
        context.exporter.host_signal(awaited[missing].there, waits[awaited[missing]])
        device.finish(number, f"a replay that waits for {len(values)} timelines")
        for each, value in signals.items():
            _is_at(context, number, each, value, f"a replay that signals {len(values)} timelines")
    recording.release()
    device.release(number)


def _is_at(context: CaseContext, waits: int, timeline: Shared, value: int, what: str) -> None:
    """Check that a timeline has reached a value, and is not above it if the exporter reads it."""
    _, device = context.ends(IN)
    device.wait(waits, timeline, value)
    device.finish(waits, f"a wait for {value} behind {what}")
    if context.exporter_reads(context.here.get(timeline.here).type.value):
        found = context.exporter.value(timeline.there)
        expect(found == value, f"a timeline is at {found}, not at {value}, behind {what}", Symptom.OTHER_VALUE)


# ---- empty recordings
def _empty_recording_changes_nothing(context: CaseContext, type: str) -> None:
    """Replay an empty recording between a wait and a signal: the signal comes behind the wait, and nothing else."""
    # The other recording of the list is not replayed.
    _, device = context.ends(IN)
    gate, after, other = (context.semaphore(type) for _ in range(3))
    number = device.new_list()
    commands = context.here.get(number)
    with commands.record() as unused:
        commands.append_signal(context.here.get(other.here), 1)
    with commands.record() as empty:
        pass
    for value in (1, 2):
        device.wait(number, gate, value)
        empty.replay()
        device.signal(number, after, value)
        device.stays_pending(number, "a signal behind a wait and the replay of an empty recording")
        context.exporter.host_signal(gate.there, value)
        device.finish(number, "the replay of an empty recording")
        _is_at(context, number, after, value, "the replay of an empty recording")
        _is_at(context, number, other, 0, "the replay of an empty recording")
    for each in (unused, empty):
        each.release()
    device.release(number)


# ---- images
def _recorded_image_copies_run_in_their_turn(context: CaseContext, type: str) -> None:
    """Record a wait and copies to a level, to another level and back: they run behind the wait, with new pixels."""
    images = [each for each in (_image(context), _image(context)) if each is not None]
    if len(images) < 2:
        return   # the device copies no images, or the exporter has no memory for them
    first, second = (each.level(0) for each in images)
    source, target = (context.device.host_buffer(PITCHES[1]) for _ in range(2))
    gate, (_, device) = context.semaphore(type), context.ends(IN)
    number = device.new_list()
    commands = context.here.get(number)
    with commands.record() as recording:
        commands.append_wait(context.here.get(gate.here), 1)
        commands.append_copy(first, source)
        commands.append_copy(second, first)
        commands.append_copy(target, second)
    for value in (1, 2):
        pixels, before = noise(PITCHES[1], value), bytes(PITCHES[1])
        source.numpy().data[:], target.numpy().data[:] = pixels, before
        recording.replay({context.here.get(gate.here): value})
        device.stays_pending(number, "a replay with copies of images behind its own wait")
        expect(target.numpy().tobytes() == before, "a recorded copy of an image ran before the wait of its replay",
               Symptom.OTHER_BYTES)
        context.exporter.host_signal(gate.there, value)
        device.finish(number, "a replay with copies of images")
        expect(target.numpy().tobytes() == pixels, "a replay did not copy the pixels that its source then has",
               Symptom.OTHER_BYTES)
    recording.release()
    device.release(number)


def _image(context: CaseContext) -> xsem.MipmappedArray | None:
    """Map an image in memory of the exporter; return None if the device copies no images there."""
    declared = context.device.capabilities
    if Feature.IMAGE_COPY not in declared.features:
        return None
    for type in sorted(each.value for each in declared.memory_import - {MemoryHandleType.DMABUF_FD}):
        with contextlib.suppress(BlockedError, UnsupportedError):   # the exporter lacks this type, or it has no images
            memory: xsem.Memory = context.here.get(context.memory(IMAGE_MEMORY, type).here)
            return memory.map_mipmapped_array(PLAIN)
    return None
