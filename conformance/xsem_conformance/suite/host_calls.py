"""Reads, signals and waits by the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Final

from xsem import Semaphore
from xsem.errors import UnsupportedError, WaitTimeoutError
from xsem.types import Feature, SemaphoreHandleType
from xsem_conformance.case.case_participant import CaseParticipant, Shared
from xsem_conformance.case.context import IN, CaseContext, value_of
from xsem_conformance.case.polling import SETTLE_S, soon
from xsem_conformance.case.time_limits import TRIES, TimedWait, at_once
from xsem_conformance.checks import check
from xsem_conformance.outcomes import BrokenError, Case, Symptom, expect

_LONG_NS: Final = 200_000_000
_EDGES: Final = (2**31 - 1, 2**31 + 1, 2**32 - 1, 2**32 + 1, 2**33, 2**53 + 1, 2**63 - 1, 2**63 + 1, 2**64 - 2)
"""Rising values beside the limits of signed and unsigned numbers, and of exact floating-point numbers."""


def _edges(context: CaseContext, type: str) -> Iterator[int]:
    """Yield the values of `_EDGES` that both sides allow behind the value before, first behind 1."""
    last = 1
    for value in _EDGES:
        if value + 1 - last > context.largest_difference(type):
            return
        yield value
        last = value


@check("XSEM-TL-007")
def device_reads_the_value(context: CaseContext, case: Case) -> None:
    """The device reads the last value of the exporter's signals, of its own signals, and of those of its host."""
    producer, device = context.ends(IN)
    semaphore, type = context.semaphore(case.handle_type), case.handle_type
    imported: Semaphore = context.here.get(semaphore.here)
    expect(imported.value() == 0, f"a new timeline is at {imported.value()}", Symptom.OTHER_VALUE)
    lists = [(end, end.new_list()) for end in (producer, device)]
    ends: list[tuple[str, Callable[[int], object]]] = [
        (end.name, functools.partial(_signals, end, commands, semaphore)) for end, commands in lists]
    if context.here.can(semaphore.here, Feature.HOST_SIGNAL):
        ends.append(("device's host", imported.host_signal))
    for turn, value in enumerate((5, 9, *_edges(context, type))):
        name, signal = ends[turn % len(ends)]
        signal(value)
        found = imported.value()
        expect(found == value, f"the {name} signalled {value}, and the device reads {found}", Symptom.OTHER_VALUE)


def _signals(end: CaseParticipant, commands: int, semaphore: Shared, value: int) -> None:
    end.signal(commands, semaphore, value)
    end.finish(commands, "a signal")


@check("XSEM-TL-008")
def signal_from_the_devices_host_meets_the_exporters_wait(context: CaseContext, case: Case) -> None:
    """A wait of the exporter is pending until the device's host signals. Each host signal sets exactly its value."""
    # A second semaphore of the device stays unsignalled.
    exporter, device = context.ends(IN)
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    other = context.semaphore(case.handle_type)
    waits = exporter.new_list()
    if exporter.waits_early(case.handle_type):
        exporter.wait(waits, semaphore, value)
        exporter.stays_pending(waits, "a wait")
    try:
        context.here.get(semaphore.here).host_signal(value)
    except UnsupportedError:
        if value is not None:
            raise
        return   # the host of Vulkan signals and waits only for timelines; no capability states this
    if not exporter.waits_early(case.handle_type):
        exporter.wait(waits, semaphore, value)
    exporter.finish(waits, "a wait")
    if value is not None:
        for edge in _edges(context, case.handle_type):
            _host_signal_sets(context, semaphore, case.handle_type, edge)
    if device.waits_early(case.handle_type):
        others, signals = device.new_list(), exporter.new_list()
        device.wait(others, other, value)
        device.stays_pending(others, "a wait for a semaphore beside a signalled one")
        exporter.signal(signals, other, value)
        device.finish(others, "a wait for the semaphore beside a signalled one")


def _host_signal_sets(context: CaseContext, semaphore: Shared, type: str, value: int) -> None:
    """Signal by the device's host: both sides read exactly this value, and a wait for the next value is pending."""
    exporter, device = context.ends(IN)
    imported = context.here.get(semaphore.here)
    imported.host_signal(value)
    if context.reads(type):
        found = imported.value()
        expect(found == value, f"the device's host signalled {value}, and the device reads {found}",
               Symptom.OTHER_VALUE)
    if context.exporter_reads(type):
        found = context.exporter.value(semaphore.there)
        expect(found == value, f"the device's host signalled {value}, and the exporter reads {found}",
               Symptom.OTHER_VALUE)
    waits, signals = device.new_list(), exporter.new_list()
    device.wait(waits, semaphore, value)
    device.finish(waits, f"a wait for {value} after a host signal of {value}")
    device.wait(waits, semaphore, value + 1)
    device.stays_pending(waits, f"a wait for {value + 1} after a host signal of {value}")
    exporter.signal(signals, semaphore, value + 1)
    device.finish(waits, f"a wait for {value + 1}")
    for end, commands in ((device, waits), (exporter, signals)):
        end.release(commands)


@check("XSEM-TL-009")
def wait_of_the_devices_host(context: CaseContext, case: Case) -> None:
    """An unmet host wait times out, and a host wait returns after the exporter's signal."""
    # At one below its value, a wait times out, too, beside the limits of 31, 32, 63 and 64 bits. A wait that times out
    # does not change the semaphore. A met wait resets a binary semaphore. A second semaphore stays unsignalled.
    exporter, _ = context.ends(IN)
    semaphore, value = context.semaphore(case.handle_type), value_of(case.handle_type)
    other = context.here.get(context.semaphore(case.handle_type).here)
    imported = context.here.get(semaphore.here)
    try:
        _times_out(imported, value, "a host wait was met without a signal")
    except UnsupportedError:
        if value is not None:
            raise
        return   # the host of Vulkan waits only for timelines; no capability states this
    _times_out_in_time(context, case.handle_type, value)
    commands = exporter.new_list()
    for _ in range(3 if value is None else 1):
        exporter.signal(commands, semaphore, value)
        exporter.finish(commands, "a signal")
        _times_out(other, value, "a host wait was met by a signal of another semaphore")
        imported.host_wait(value, timeout_s=context.patience_s)
        if value is None:
            if not context.device.capabilities.resets_on_wait:
                return
            _times_out(imported, value, "a second host wait was met by one signal of a binary semaphore")
    if value is not None:
        imported.host_wait(0, timeout_s=context.patience_s)
        _host_waits_at_the_edges(context, case.handle_type, imported, functools.partial(
            _signals, exporter, commands, semaphore))


def _host_waits_at_the_edges(
    context: CaseContext, type: str, imported: Semaphore, signal: Callable[[int], object]
) -> None:
    """A host wait is not met at one below its value, and met at its value. No wait consumes the value."""
    for value in _edges(context, type):
        signal(value)
        _times_out(imported, value + 1, f"a host wait for {value + 1} was met at {value}")
        signal(value + 1)
        for awaited in (value + 1, value + 1, 1):
            imported.host_wait(awaited, timeout_s=context.patience_s)


def _times_out_in_time(context: CaseContext, type: str, value: int | None) -> None:
    """Call the driver itself: a host wait without a signal times out in time, and a met host wait returns at once."""
    declared = context.device.capabilities
    if Feature.HOST_WAIT not in declared.features or SemaphoreHandleType(type).portable:
        return   # xsem makes the host waits for a portable timeline itself
    shared, driver = context.semaphore(type), context.driver
    token = context.driver_semaphore(shared)
    timed = TimedWait(functools.partial(driver.host_wait, token, value), "a host wait")
    for _ in range(TRIES):
        expect(not timed(), "a host wait was met without a signal")
        if timed.in_time():
            break
    timed.check()
    if value is not None:   # each try needs the signal
        context.exporter.host_signal(shared.there, value)
        soon(functools.partial(driver.host_wait, token, value, 0), "a host wait is not met by a signal",
             context.patience_s)
        at_once(functools.partial(driver.host_wait, token, value, _LONG_NS), "a met host wait")
    driver.release_semaphore(token)


def _times_out(semaphore: Semaphore, value: int | None, otherwise: str) -> None:
    try:
        semaphore.host_wait(value, timeout_s=SETTLE_S)
    except WaitTimeoutError:
        return
    raise BrokenError(otherwise)
