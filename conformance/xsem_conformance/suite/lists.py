"""Concurrent lists, and the order in a list."""

from __future__ import annotations

import functools
import itertools
import os
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from typing import Final

from xsem import Buffer, CommandList, Event
from xsem.errors import BusyError
from xsem.types import SemaphoreDesc
from xsem_conformance.case import measures
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.gates import Gates, up_to_eight_events_count
from xsem_conformance.case.holding import held
from xsem_conformance.case.other_thread import all_at_once
from xsem_conformance.case.polling import SETTLE_S, never, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, NotDeclaredError, Symptom, expect

_CELL: Final = 16
"""Size of each copy and fill behind events, in bytes."""


@check("XSEM-LIST-001")
def another_list_runs_while_one_waits(context: CaseContext, case: Case) -> None:
    """A waiting list blocks no other list: their signals are made, also the awaited signal."""
    semaphore, other = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    value = value_of(case.handle_type)
    waits, works = context.device.create_command_list(), context.device.create_command_list()
    waits.append_wait(context.here.get(semaphore.here), value)
    works.append_signal(context.here.get(other.here), value)
    works.synchronize(timeout_s=context.patience_s)
    context.arrives(other, value)
    never(waits.query, "the wait was met by another semaphore's signal")
    works.append_signal(context.here.get(semaphore.here), value)
    waits.synchronize(timeout_s=context.patience_s)


@check("XSEM-ORD-004")
def list_is_in_order(context: CaseContext, case: Case) -> None:
    """A signal behind a wait on the same list is not visible before the wait is met."""
    producer, device = context.ends(IN)
    gate, semaphore = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    first, second = context.device.create_command_list(), context.device.create_command_list()
    signals = producer.new_list()
    # From the second turn on, xsem uses the driver's prepared calls.
    for turn in range(3 if context.repeats(device, case.handle_type) else 1):
        value = value_of(case.handle_type, turn + 1)
        with held(producer, device, signals, case.handle_type,
                  functools.partial(producer.signal, signals, gate, value)) as hold:
            first.append_wait(context.here.get(gate.here), value)
            first.append_signal(context.here.get(semaphore.here), value)
            second.append_wait(context.here.get(semaphore.here), value)
            hold.pending(second.query, f"signal {turn + 1} behind a wait on its own list")
        second.synchronize(timeout_s=context.patience_s)


@check("XSEM-THR-002", deadline_s=60)
def threads_append_to_lists_of_their_own(context: CaseContext, case: Case) -> None:
    """Four threads, each with a list and a semaphore, signal and wait 100 times."""
    timeline = value_of(case.handle_type) is not None
    _, device = context.ends(IN)
    shared = [context.semaphore(case.handle_type) for _ in range(4)]
    semaphores = [context.here.get(each.here) for each in shared]

    def work(index: int) -> None:
        commands = context.device.create_command_list()
        for turn in range(100):
            value = turn + 1 if timeline else None
            commands.append_signal(semaphores[index], value)
            commands.append_wait(semaphores[index], value)
            if not context.repeats(device, case.handle_type):
                break
        commands.append_signal(semaphores[index], 101 if timeline else None)
        commands.synchronize(timeout_s=context.patience_s)

    all_at_once(functools.partial(work, index) for index in range(4))
    for each in shared:   # the exporter sees the last signal
        context.arrives(each, 101 if timeline else None)


@check("XSEM-KILL-001")
def killed_exporter_leaves_the_device_usable(context: CaseContext, case: Case) -> None:
    """After the kill of the exporter a wait stays pending, the device's own signal meets it, and new objects work."""
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    waits, signals = context.device.create_command_list(), context.device.create_command_list()
    waits.append_wait(context.here.get(semaphore.here), value)
    context.kill_exporter()
    never(waits.query, "the wait was met when its exporter was killed")
    signals.append_signal(context.here.get(semaphore.here), value)
    soon(waits.query, "the device's own signal does not meet its wait after the exporter is killed", context.patience_s)
    another = context.semaphore(case.handle_type)   # from a new exporter
    signals.append_signal(context.here.get(another.here), value)
    signals.synchronize(timeout_s=context.patience_s)


@check("XSEM-KILL-002")
def devices_own_signal_meets_a_wait_whose_exporter_was_killed(context: CaseContext, case: Case) -> None:
    """The device signals on another list."""
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    waits, signals = context.device.create_command_list(), context.device.create_command_list()
    waits.append_wait(context.here.get(semaphore.here), value)
    context.kill_exporter()
    signals.append_signal(context.here.get(semaphore.here), value)
    waits.synchronize(timeout_s=context.patience_s)


@check("XSEM-WBS-003")
def later_signal_of_another_list_frees_a_waiting_list(context: CaseContext, case: Case) -> None:
    """A later signal on another list of the device meets the wait."""
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    waits = context.device.create_command_list()
    waits.append_wait(context.here.get(semaphore.here), value)
    never(waits.query, "a wait was met before any signal")
    signals = context.device.create_command_list()
    signals.append_signal(context.here.get(semaphore.here), value)
    waits.synchronize(timeout_s=context.patience_s)


@check("XSEM-WBS-006")
def wait_is_met_within_a_second(context: CaseContext, case: Case) -> None:
    """The shortest of at most five times from the exporter's signal to the end of the wait is below one second."""
    latency_s = measures.wake_up_s(context, case.handle_type)
    expect(latency_s < measures.WAKE_UP_S, f"a wait was met {latency_s:.1f} s after its signal, in the best of 5 tries")


@check("XSEM-BIN-004")
def one_signal_meets_one_of_two_waits(context: CaseContext, case: Case) -> None:
    """Of two waits on two lists one signal meets exactly one, and the next signal meets the other."""
    producer, _ = context.ends(IN)
    semaphore = context.semaphore(case.handle_type)
    lists = [context.device.create_command_list() for _ in range(2)]
    for each in lists:
        each.append_wait(context.here.get(semaphore.here))
    signals = producer.new_list()
    producer.signal(signals, semaphore)
    soon(lambda: any(each.query() for each in lists), "neither of two waits was met by a signal", context.patience_s)
    time.sleep(SETTLE_S)
    expect(sum(each.query() for each in lists) == 1, "one signal met two waits")
    producer.signal(signals, semaphore)
    for each in lists:
        each.synchronize(timeout_s=context.patience_s)


@check("XSEM-ORD-005")
def append_behind_an_unmet_wait_returns(context: CaseContext, case: Case) -> None:
    """The appends of an unmet wait and a signal behind it return while both are pending."""
    producer, device = context.ends(IN)
    gate, semaphore = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    commands, signals = context.device.create_command_list(), producer.new_list()
    # From the second turn on, xsem uses the driver's prepared calls.
    for turn in range(3 if context.repeats(device, case.handle_type) else 1):
        value = value_of(case.handle_type, turn + 1)
        with held(producer, device, signals, case.handle_type,
                  functools.partial(producer.signal, signals, gate, value)) as hold:
            began = time.monotonic()
            commands.append_wait(context.here.get(gate.here), value)
            commands.append_signal(context.here.get(semaphore.here), value)
            expect(time.monotonic() - began < context.patience_s / 2, "an append blocked until its wait was met")
            hold.pending(commands.query, "a signal behind a wait")
        commands.synchronize(timeout_s=context.patience_s)


@check("XSEM-LIST-002")
def last_list_runs_while_all_others_wait(context: CaseContext, case: Case) -> None:
    """Of as many lists as are declared independent, at most 64, all but one wait, and the last list runs to its end."""
    type, value = case.handle_type, value_of(case.handle_type)
    count = min(64, context.device.capabilities.independent_lists)
    other = context.semaphore(type)
    gates = [context.semaphore(type) for _ in range(count - 1 if value is None else 1)]
    lists = [context.device.create_command_list() for _ in range(count)]
    for index, each in enumerate(lists[:-1]):
        each.append_wait(context.here.get(gates[index % len(gates)].here), value)
    lists[-1].append_signal(context.here.get(other.here), value)
    lists[-1].synchronize(timeout_s=context.patience_s)
    never(lambda: any(each.query() for each in lists[:-1]), "a held list is done")
    for gate in gates:
        context.exporter.host_signal(gate.there, value)
    for each in lists:
        each.synchronize(timeout_s=context.patience_s)


@check("XSEM-LIST-003")
def copy_and_fill_behind_other_lists_events_follow_their_writes(context: CaseContext, case: Case) -> None:
    """Several lists write behind waits, and another list copies or fills behind the events of all these lists."""
    # The first or the last event is missing in turn. Meanwhile, the copy or the fill has changed no byte. The waits are
    # for semaphores of each type in turn. The last part copies and fills behind no event, and behind one to eight.
    producer, device = context.ends(IN)
    types = itertools.cycle(context.early_types())
    old, new, filled = b"\x22" * 256, b"\xee" * 256, b"\x5a" * 256
    source, middle, copied = (context.memory(4096, case.handle_type) for _ in range(3))
    views = [context.here.mapping(each.here).view((256,), "uint8") for each in (source, middle, copied)]
    number, puts = device.new_list(), producer.new_list()
    commands, gates = context.here.get(number), Gates(context, next(types), puts)
    for missing in (0, len(gates) - 1):
        for what in ("copy", "fill"):
            for memory, data in ((source, new), (middle, b"\x11" * 256), (copied, old)):
                producer.write(puts, memory, data)
            producer.finish(puts, "copies")
            events = gates.close(lambda each: each.append_copy(views[1], views[0]))
            done, target = context.device.create_event(), copied if what == "copy" else middle
            reached = context.device.create_event()   # reached before the others, and no wait event
            commands.append_barrier(signal_event=reached)
            if what == "copy":
                commands.append_copy(views[2], views[1], wait_events=events, signal_event=done)
            else:
                commands.append_fill(views[1], b"\x5a", wait_events=events, signal_event=done)
                commands.append_copy(views[2], views[1])
            gates.open_all_but(missing)
            never(done.query, f"a {what} was done before event {missing + 1} of {len(gates)}")
            before = old if what == "copy" else b"\x11" * 256 if len(gates) == 1 else new
            expect(measures.read_there(context, target, 256) == before,
                   f"a {what} changed bytes before event {missing + 1} of {len(gates)}")
            gates.open(missing)
            done.wait(timeout_s=context.patience_s)
            expect(reached.query(), "an event behind no work is not reached", Symptom.NOT_DONE)
            commands.synchronize(timeout_s=context.patience_s)
            expect(measures.read_there(context, copied, 256) == (new if what == "copy" else filled),
                   f"a {what} did not take effect after the writes of the other lists", Symptom.OTHER_BYTES)
            gates.type = next(types)
    _without_events_waits_for_none(context, gates, commands, copied)
    device.release(number)   # some devices have few queues
    _behind_up_to_eight_events(context, gates, source, copied)


def _without_events_waits_for_none(context: CaseContext, gates: Gates, commands: CommandList, target: Shared) -> None:
    """A copy and a fill without events take effect while all other lists wait."""
    gates.close()
    whole = context.here.mapping(target.here)
    commands.append_fill(whole.view((_CELL,), "uint8"), b"\x5b")
    commands.append_copy(whole.view((_CELL,), "uint8", offset=_CELL), whole.view((_CELL,), "uint8"))
    commands.synchronize(timeout_s=context.patience_s)
    expect(measures.read_there(context, target, 2 * _CELL) == b"\x5b" * 2 * _CELL,
           "a fill and a copy without events copied other bytes", Symptom.OTHER_BYTES)
    gates.open_all_but(0)
    gates.open(0)


def _behind_up_to_eight_events(context: CaseContext, gates: Gates, source: Shared, target: Shared) -> None:
    """Each copy and each fill has a cell of its own. The cell is unchanged while one of its events is held back."""
    producer, _ = context.ends(IN)
    puts = producer.new_list()
    for memory, value in ((source, b"\x31"), (target, b"\x11")):
        producer.write(puts, memory, value * 4096)
    producer.finish(puts, "copies")
    producer.release(puts)
    from_, to = (context.here.mapping(each.here) for each in (source, target))
    expected, pending = bytearray(b"\x11" * 4096), bytearray(b"\x11" * 4096)
    offsets = itertools.count(0, _CELL)

    def cell(value: bytes) -> tuple[Buffer, Buffer]:
        at = next(offsets)
        pending[at:at + _CELL] = value * _CELL
        return from_.view((_CELL,), "uint8", offset=at), to.view((_CELL,), "uint8", offset=at)

    def copy(commands: CommandList, events: Sequence[Event], done: Event) -> None:
        origin, place = cell(b"\x31")
        commands.append_copy(place, origin, wait_events=events, signal_event=done)

    def fill(commands: CommandList, events: Sequence[Event], done: Event) -> None:
        commands.append_fill(cell(b"\x32")[1], b"\x32", wait_events=events, signal_event=done)

    def unchanged() -> None:
        found = measures.read_there(context, target, 4096)
        wrong = [at // _CELL + 1 for at in range(0, 4096, _CELL) if found[at:at + _CELL] != expected[at:at + _CELL]]
        expect(not wrong, f"cells {wrong[:3]} of the copies and fills are wrong while an event of later ones is held")
        expected[:] = pending

    up_to_eight_events_count(context, gates, {"a copy": copy, "a fill": fill}, unchanged)
    unchanged()


@check("XSEM-THR-001", deadline_s=60)
def threads_import_use_and_release(context: CaseContext, case: Case) -> None:
    """Eight threads import, use and release semaphores at once. The exporter sees each signal on its own semaphore."""
    shared = [context.semaphore(case.handle_type) for _ in range(32)]
    given = [(context.exporter.export_semaphore(each.there, context.importer_uuid),
              value_of(case.handle_type, 10 + index))
             for index, each in enumerate(shared)]
    start = threading.Barrier(8)

    def work(mine: Sequence[tuple[SemaphoreDesc, int | None]]) -> None:
        start.wait()
        for desc, value in mine:
            with desc, context.device.import_semaphore(desc) as semaphore:
                commands = _list_in_turn(context)
                commands.append_signal(semaphore, value)
                commands.append_wait(semaphore, value)
                commands.append_signal(semaphore, None if value is None else 100 + value)
                commands.synchronize(timeout_s=context.patience_s)
                commands.release()

    all_at_once(functools.partial(work, given[index::8]) for index in range(8))
    for each, (_, value) in zip(shared, given, strict=True):
        context.arrives(each, None if value is None else 100 + value)
        if value is not None and context.exporter_reads(case.handle_type):
            found = context.exporter.value(each.there)
            expect(found == 100 + value, f"a thread signalled {100 + value} on its semaphore, which is at {found}",
                   Symptom.OTHER_VALUE)


def _list_in_turn(context: CaseContext) -> CommandList:
    """Create a list; retry while the device reports that all its queues are in use."""
    deadline = time.monotonic() + context.patience_s
    while True:
        try:
            return context.device.create_command_list()
        except BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.001)


@check("XSEM-FORK-002")
def parent_goes_on_after_a_child_was_forked(context: CaseContext, case: Case) -> None:
    """After a forked child has exited, a pending wait is still pending and then met, and new imports work."""
    if sys.platform == "win32":
        raise NotDeclaredError("Windows has no fork")
    type = case.handle_type
    value, semaphore = value_of(type), context.semaphore(type)
    commands = context.device.create_command_list()
    producer, device = context.ends(IN)
    signals = producer.new_list()
    with held(producer, device, signals, type, lambda: producer.signal(signals, semaphore, value)) as hold:
        commands.append_wait(context.here.get(semaphore.here), value)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)   # for a fork with threads: the subject of this check
            child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        hold.pending(commands.query, "a wait beside the exit of a child")
    commands.synchronize(timeout_s=context.patience_s)
    another = context.semaphore(type)
    commands.append_signal(context.here.get(another.here), value)
    commands.synchronize(timeout_s=context.patience_s)
