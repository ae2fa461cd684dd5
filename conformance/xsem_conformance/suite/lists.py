"""Event lists, concurrent lists, and the order in a list."""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings

from xsem import CommandList
from xsem.errors import BusyError
from xsem.types import SemaphoreDesc, WaitParams
from xsem_conformance.case import measures
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.holding import held
from xsem_conformance.case.polling import SETTLE_S, never, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BlockedError, Case, expect


@check("XSEM-EVT-003")
def event_is_reached_after_its_operation(context: CaseContext, case: Case) -> None:
    """The event of a wait is not reached before the wait is met."""
    producer, device = context.ends(IN)
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    commands, event = context.device.create_command_list(), context.device.create_event()
    signals = producer.new_list()
    with held(producer, device, signals, case.handle_type, lambda: producer.signal(signals, semaphore, value)) as hold:
        commands.append_wait(context.here.get(semaphore.here), value, signal_event=event)
        hold.pending(event.query, "the event of a wait")
    event.wait(timeout_s=context.patience_s)


@check("XSEM-EVT-002")
def wait_events_order_two_lists(context: CaseContext, case: Case) -> None:
    """Work that waits for another list's event is pending while that list is held."""
    producer, _ = context.ends(IN)
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    first, second = context.device.create_command_list(), context.device.create_command_list()
    held, after = context.device.create_event(), context.device.create_event()
    first.append_wait(context.here.get(semaphore.here), value, signal_event=held)
    second.append_barrier(wait_events=[held], signal_event=after)
    never(after.query, "a barrier that waits for a held list's event was done")
    signals = producer.new_list()
    producer.signal(signals, semaphore, value)
    after.wait(timeout_s=context.patience_s)


@check("XSEM-EVT-001")
def signal_waits_for_its_events(context: CaseContext, case: Case) -> None:
    """A signal with wait_events is not visible before those events are reached."""
    producer, _ = context.ends(IN)
    gate, semaphore = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    value = value_of(case.handle_type)
    first, second, third = (context.device.create_command_list() for _ in range(3))
    held = context.device.create_event()
    first.append_wait(context.here.get(gate.here), value, signal_event=held)
    second.append_signal(context.here.get(semaphore.here), value, wait_events=[held])
    third.append_wait(context.here.get(semaphore.here), value)
    never(third.query, "a signal was seen before the event that it waits for")
    signals = producer.new_list()
    producer.signal(signals, gate, value)
    third.synchronize(timeout_s=context.patience_s)


@check("XSEM-LIST-001")
def another_list_runs_while_one_waits(context: CaseContext, case: Case) -> None:
    """A waiting list blocks no other list: their signals are made, also the awaited signal."""
    semaphore, other = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    value = value_of(case.handle_type)
    waits, works = context.device.create_command_list(), context.device.create_command_list()
    waits.append_wait(context.here.get(semaphore.here), value)
    works.append_signal(context.here.get(other.here), value)
    works.synchronize(timeout_s=context.patience_s)
    never(waits.query, "the wait was met by another semaphore's signal")
    works.append_signal(context.here.get(semaphore.here), value)
    waits.synchronize(timeout_s=context.patience_s)


@check("XSEM-ORD-004")
def list_is_in_order(context: CaseContext, case: Case) -> None:
    """A signal behind a wait on the same list is not visible before the wait is met."""
    producer, device = context.ends(IN)
    gate, semaphore = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    value = value_of(case.handle_type)
    first, second = context.device.create_command_list(), context.device.create_command_list()
    signals = producer.new_list()
    with held(producer, device, signals, case.handle_type, lambda: producer.signal(signals, gate, value)) as hold:
        first.append_wait(context.here.get(gate.here), value)
        first.append_signal(context.here.get(semaphore.here), value)
        second.append_wait(context.here.get(semaphore.here), value)
        hold.pending(second.query, "a signal behind a wait on its own list")
    second.synchronize(timeout_s=context.patience_s)


@check("XSEM-THR-002", deadline_s=60)
def threads_append_to_lists_of_their_own(context: CaseContext, case: Case) -> None:
    """Four threads, each with a list and a semaphore, signal and wait 100 times."""
    timeline = value_of(case.handle_type) is not None
    failures: list[BaseException] = []
    semaphores = [context.here.get(context.semaphore(case.handle_type).here) for _ in range(4)]

    def work(index: int) -> None:
        try:
            commands = context.device.create_command_list()
            for turn in range(100):
                value = turn + 1 if timeline else None
                commands.append_signal(semaphores[index], value)
                commands.append_wait(semaphores[index], value)
            commands.synchronize(timeout_s=context.patience_s)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, f"a thread failed: {failures[:1]}")


@check("XSEM-KILL-001")
def killed_exporter_leaves_the_device_usable(context: CaseContext, case: Case) -> None:
    """After the kill of the exporter a wait stays pending, the device's own signal meets it, and new objects work."""
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    waits, signals = context.device.create_command_list(), context.device.create_command_list()
    waits.append_wait(context.here.get(semaphore.here), value)
    context.kill_peer()
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
    context.kill_peer()
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
    threading.Event().wait(SETTLE_S)
    expect(sum(each.query() for each in lists) == 1, "one signal met two waits")
    producer.signal(signals, semaphore)
    for each in lists:
        each.synchronize(timeout_s=context.patience_s)


@check("XSEM-EVT-004")
def operation_without_events_waits_for_none(context: CaseContext, case: Case) -> None:
    """An operation without wait events completes while an event of another list is not reached."""
    producer, _ = context.ends(IN)
    gate, other = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    value = value_of(case.handle_type)
    first, second = context.device.create_command_list(), context.device.create_command_list()
    held = context.device.create_event()
    first.append_wait(context.here.get(gate.here), value, signal_event=held)
    second.append_signal(context.here.get(other.here), value)
    second.synchronize(timeout_s=context.patience_s)
    never(held.query, "an event was reached before its wait was met")
    signals = producer.new_list()
    producer.signal(signals, gate, value)
    held.wait(timeout_s=context.patience_s)


@check("XSEM-EVT-005")
def point_is_not_done_while_its_operation_is_held(context: CaseContext, case: Case) -> None:
    """The driver reports a held fence as not reached, its `wait` times out, and a reached fence stays reached."""
    type = context.some_type()
    value, shared = value_of(type), context.semaphore(type)
    token = context.driver_semaphore(shared)
    commands = context.driver.create_queue()
    producer, device = context.ends(IN)
    signals = producer.new_list()
    with held(producer, device, signals, type, lambda: producer.signal(signals, shared, value)) as hold:
        fence = commands.append_wait([token], [WaitParams(value=value)], (), (), True)
        hold.pending(lambda: context.driver.query_fence(fence), "the fence of a held wait")
        began = time.monotonic()
        hold.pending(lambda: context.driver.wait_fence(fence, 20_000_000), "waiting for the fence of a held wait")
        expect(time.monotonic() - began < context.patience_s, "waiting for a fence takes longer than its timeout")
    soon(lambda: context.driver.query_fence(fence), "a fence is never reached", context.patience_s)
    expect(context.driver.query_fence(fence) and context.driver.wait_fence(fence, 0),
           "a reached fence is not reached any more")
    context.driver.release_fence(fence)
    context.driver.release_semaphore(token)
    commands.close()


@check("XSEM-ORD-005")
def append_behind_an_unmet_wait_returns(context: CaseContext, case: Case) -> None:
    """The appends of an unmet wait and a signal behind it return while both are pending."""
    producer, _ = context.ends(IN)
    gate, semaphore = context.semaphore(case.handle_type), context.semaphore(case.handle_type)
    value = value_of(case.handle_type)
    _, device = context.ends(IN)
    commands, signals = context.device.create_command_list(), producer.new_list()
    with held(producer, device, signals, case.handle_type, lambda: producer.signal(signals, gate, value)) as hold:
        began = time.monotonic()
        commands.append_wait(context.here.get(gate.here), value)
        commands.append_signal(context.here.get(semaphore.here), value)
        expect(time.monotonic() - began < context.patience_s / 2, "an append blocked until its wait was met")
        hold.pending(commands.query, "a signal behind a wait")
    commands.synchronize(timeout_s=context.patience_s)


@check("XSEM-LIST-002")
def last_list_runs_while_all_others_wait(context: CaseContext, case: Case) -> None:
    """Of as many lists as are declared independent, at most 64, all but one wait, and the last list runs to its end."""
    type = context.some_type()
    value = value_of(type)
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
        context.peer.host_signal(gate.there, value)
    for each in lists:
        each.synchronize(timeout_s=context.patience_s)


@check("XSEM-LIST-003")
def copy_behind_another_lists_event_reads_what_that_wrote(context: CaseContext, case: Case) -> None:
    """One list writes behind a gate, another copies behind its event: the copy is pending, then has the new bytes."""
    producer, device = context.ends(IN)
    (gate, opening), new = context.gate(device), b"\xee" * 256
    source, middle, copied = (context.memory(4096) for _ in range(3))
    puts = producer.new_list()
    for memory, data in ((source, new), (middle, b"\x11" * 256), (copied, b"\x22" * 256)):
        producer.write(puts, memory, data)
    producer.finish(puts, "copies")
    views = [context.here.mapping(each.here).view((256,), "uint8") for each in (source, middle, copied)]
    writes, copies = context.device.create_command_list(), context.device.create_command_list()
    written, done = context.device.create_event(), context.device.create_event()
    writes.append_wait(context.here.get(gate.here), opening)
    writes.append_copy(views[1], views[0], signal_event=written)
    copies.append_copy(views[2], views[1], wait_events=[written], signal_event=done)
    never(done.query, "a copy that waits for a held list's event was done")
    context.peer.host_signal(gate.there, opening)
    done.wait(timeout_s=context.patience_s)
    expect(measures.read_there(context, copied, 256) == new, "the copy did not read the bytes of the other list")
    writes.synchronize(timeout_s=context.patience_s)


@check("XSEM-THR-001", deadline_s=60)
def threads_import_use_and_release(context: CaseContext, case: Case) -> None:
    """Eight threads import, use and release semaphores at once."""
    value = value_of(case.handle_type)
    descs = [[context.peer.export_semaphore(context.semaphore(case.handle_type).there, context.importer)
              for _ in range(4)] for _ in range(8)]
    failures: list[BaseException] = []

    def work(mine: list[SemaphoreDesc]) -> None:
        try:
            for desc in mine:
                with desc, context.device.import_semaphore(desc) as semaphore:
                    commands = _list_in_turn(context)
                    commands.append_signal(semaphore, value)
                    commands.append_wait(semaphore, value)
                    commands.synchronize(timeout_s=context.patience_s)
                    commands.release()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in descs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, f"a thread failed: {failures[:1]}")


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
    type = context.some_type()
    value, semaphore = value_of(type), context.semaphore(type)
    commands = context.device.create_command_list()
    if sys.platform == "win32":
        raise BlockedError("this system does not support fork")
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
