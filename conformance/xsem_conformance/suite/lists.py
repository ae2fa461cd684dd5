"""Event lists, lists beside each other, and what a list promises about order."""

from __future__ import annotations

import threading

from xsem_conformance.bench import IN, SETTLE_S, Bench, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, expect


@check("EVT-AFTER")
def event_is_reached_after_its_operation(bench: Bench, case: Case) -> None:
    """An event that a wait signals is not reached before the wait is met."""
    producer, _ = bench.ends(IN)
    semaphore, value = bench.semaphore(case.handle_type), _one(case)
    commands, event = bench.device.create_command_list(), bench.device.create_event()
    commands.append_wait(bench.here.get(semaphore.here), value, signal_event=event)
    threading.Event().wait(SETTLE_S)
    expect(not event.query(), "the event of a wait was reached before the wait was met")
    signals = producer.new_list()
    producer.signal(signals, semaphore, value)
    event.wait(timeout_s=bench.patience_s)


@check("EVT-ORDERS")
def wait_events_order_two_lists(bench: Bench, case: Case) -> None:
    """Work that waits for another list's event is pending as long as that list is held."""
    producer, _ = bench.ends(IN)
    semaphore, value = bench.semaphore(case.handle_type), _one(case)
    first, second = bench.device.create_command_list(), bench.device.create_command_list()
    held, after = bench.device.create_event(), bench.device.create_event()
    first.append_wait(bench.here.get(semaphore.here), value, signal_event=held)
    second.append_barrier(wait_events=[held], signal_event=after)
    threading.Event().wait(SETTLE_S)
    expect(not after.query(), "a barrier that waits for a held list's event was passed")
    signals = producer.new_list()
    producer.signal(signals, semaphore, value)
    after.wait(timeout_s=bench.patience_s)


@check("EVT-SIGNAL")
def signal_waits_for_its_events(bench: Bench, case: Case) -> None:
    """A signal with wait_events is not seen before those events are reached."""
    producer, _ = bench.ends(IN)
    gate, semaphore, value = bench.semaphore(case.handle_type), bench.semaphore(case.handle_type), _one(case)
    first, second, third = (bench.device.create_command_list() for _ in range(3))
    held = bench.device.create_event()
    first.append_wait(bench.here.get(gate.here), value, signal_event=held)
    second.append_signal(bench.here.get(semaphore.here), value, wait_events=[held])
    third.append_wait(bench.here.get(semaphore.here), value)
    threading.Event().wait(SETTLE_S)
    expect(not third.query(), "a signal was seen before the event that it waits for")
    signals = producer.new_list()
    producer.signal(signals, gate, value)
    third.synchronize(timeout_s=bench.patience_s)


@check("LIST-INDEPENDENT")
def another_list_runs_while_one_waits(bench: Bench, case: Case) -> None:
    """A list that waits holds no other list: signals pass, also the one that it waits for."""
    semaphore, other, value = bench.semaphore(case.handle_type), bench.semaphore(case.handle_type), _one(case)
    waits, works = bench.device.create_command_list(), bench.device.create_command_list()
    waits.append_wait(bench.here.get(semaphore.here), value)
    works.append_signal(bench.here.get(other.here), value)
    works.synchronize(timeout_s=bench.patience_s)
    expect(not waits.query(), "the wait was met by another semaphore's signal")
    works.append_signal(bench.here.get(semaphore.here), value)
    waits.synchronize(timeout_s=bench.patience_s)


@check("LIST-ORDER")
def list_is_in_order(bench: Bench, case: Case) -> None:
    """A signal behind a wait on the same list is not seen before the wait is met."""
    producer, _ = bench.ends(IN)
    gate, semaphore, value = bench.semaphore(case.handle_type), bench.semaphore(case.handle_type), _one(case)
    first, second = bench.device.create_command_list(), bench.device.create_command_list()
    first.append_wait(bench.here.get(gate.here), value)
    first.append_signal(bench.here.get(semaphore.here), value)
    second.append_wait(bench.here.get(semaphore.here), value)
    threading.Event().wait(SETTLE_S)
    expect(not second.query(), "a signal overtook the wait before it on its own list")
    signals = producer.new_list()
    producer.signal(signals, gate, value)
    second.synchronize(timeout_s=bench.patience_s)


@check("LIST-THREADS", deadline_s=60)
def threads_append_to_lists_of_their_own(bench: Bench, case: Case) -> None:
    """Four threads, each with a list and a semaphore, signal and wait 100 times."""
    timeline = _one(case) is not None
    failures: list[BaseException] = []
    semaphores = [bench.here.get(bench.semaphore(case.handle_type).here) for _ in range(4)]

    def work(index: int) -> None:
        try:
            commands = bench.device.create_command_list()
            for turn in range(100):
                value = turn + 1 if timeline else None
                commands.append_signal(semaphores[index], value)
                commands.append_wait(semaphores[index], value)
            commands.synchronize(timeout_s=bench.patience_s)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not failures, f"a thread failed: {failures[:1]}")


@check("KILL-PEER")
def killed_exporter_leaves_the_device_usable(bench: Bench, case: Case) -> None:
    """With the exporter killed, a pending wait stays pending, the device's own signal meets it, new objects work."""
    semaphore, value = bench.semaphore(case.handle_type), _one(case)
    waits, signals = bench.device.create_command_list(), bench.device.create_command_list()
    waits.append_wait(bench.here.get(semaphore.here), value)
    bench.kill_peer()
    threading.Event().wait(SETTLE_S)
    expect(not waits.query(), "the wait was met when its exporter was killed")
    signals.append_signal(bench.here.get(semaphore.here), value)
    soon(waits.query, "the device's own signal does not meet its wait once the exporter is gone", bench.patience_s)
    another = bench.semaphore(case.handle_type)   # from a new exporter
    signals.append_signal(bench.here.get(another.here), value)
    signals.synchronize(timeout_s=bench.patience_s)


def _one(case: Case, value: int = 1) -> int | None:
    return value if "timeline" in case.handle_type or "fence" in case.handle_type else None
