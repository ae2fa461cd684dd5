"""What a device does where the rules leave it a choice: measured, and told as facts, not as verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from xsem.data.handles import OwnedHandle
from xsem.errors import XsemError
from xsem.spi import ImportFailure
from xsem.types import Carrier, Feature, Kind, SemaphoreDesc, SemaphoreHandleType
from xsem_conformance import measures
from xsem_conformance.bench import SETTLE_S, Bench, duplicate, value_of
from xsem_conformance.descriptors import identity, null
from xsem_conformance.outcomes import BlockedError
from xsem_conformance.peer import PeerFailedError

__all__ = ["QUIRKS", "measure"]

_NOT_FIRST: Final = "the device declares no wait before its signal"


def measure(bench: Bench) -> dict[str, Any]:
    """Every quirk by name; ``"not known: why"`` where it could not be measured."""
    found: dict[str, Any] = {}
    for name, quirk in QUIRKS.items():
        with bench.fresh():
            try:
                found[name] = quirk(bench)
            except (BlockedError, PeerFailedError, XsemError, AssertionError) as error:
                found[name] = f"not known: {error}"
    return found


def _types(bench: Bench, kind: Kind) -> list[SemaphoreHandleType]:
    return sorted((each for each in bench.device.capabilities.semaphore_import if each.kind is kind),
                  key=lambda each: each.value)


def resets_on_wait(bench: Bench) -> dict[str, bool | str]:
    """Per binary type: whether a met wait resets, so that the next one is pending."""
    early = bench.device.capabilities.wait_before_signal
    return {type.value: _resets(bench, type.value) if type in early else f"not known: {_NOT_FIRST}"
            for type in _types(bench, Kind.BINARY)}


def _resets(bench: Bench, type: str) -> bool:
    shared, here = bench.semaphore(type), bench.here
    first, second, signals = here.new_list(), here.new_list(), here.new_list()
    here.signal(signals, [shared.here], [None])
    here.synchronize(signals, bench.patience_s)
    here.wait(first, [shared.here], [None])
    here.synchronize(first, bench.patience_s)
    if not bench.device.capabilities.resets_on_wait:
        here.get(shared.here).mark_reset()   # else the facade would refuse the second wait
    here.wait(second, [shared.here], [None])
    time.sleep(SETTLE_S)
    pending = not here.done(second)
    if pending:
        here.signal(signals, [shared.here], [None])
        here.synchronize(second, bench.patience_s)
    return pending


def wait_before_signal(bench: Bench) -> dict[str, bool]:
    """Per type: whether a wait that is appended before its signal is submitted stays pending, and is met by it."""
    found = {}
    for type in sorted(bench.device.capabilities.semaphore_import, key=lambda each: each.value):
        if type not in bench.device.capabilities.wait_before_signal:
            found[type.value] = False
            continue
        shared, value = bench.semaphore(type.value), value_of(type.value)
        waits = bench.here.new_list()
        bench.here.wait(waits, [shared.here], [value])
        time.sleep(SETTLE_S)
        pending = not bench.here.done(waits)
        bench.peer.host_signal(shared.there, value)
        bench.here.synchronize(waits, bench.patience_s)
        found[type.value] = pending
    return found


def pending_appends(bench: Bench) -> int | str:
    """How many appends behind an unmet wait return at once, asked of the driver itself."""
    type = _preferred(bench)
    if type is None:
        return f"not known: {_NOT_FIRST}"
    at_once = measures.pending_appends(bench, type, measures.MOST_APPENDS)
    return at_once if at_once < measures.MOST_APPENDS else f"at least {measures.MOST_APPENDS}"


def fd_after_failed_import(bench: Bench) -> dict[str, str]:
    """Per fd type: what the driver says became of a file descriptor that it refused, and what is true."""
    found = {}
    for type in sorted(bench.device.capabilities.semaphore_import, key=lambda each: each.value):
        if type.carrier.value != "fd":
            continue
        number = null()
        before = identity(number)
        with OwnedHandle(number) as handle:
            desc = SemaphoreDesc(type=type, handle=handle, device_uuid=bench.device.info.uuid)
            try:
                bench.driver.release_semaphore(bench.driver.import_semaphore(desc, handle))
                found[type.value] = "taken: the driver imports /dev/null"
            except ImportFailure as failure:
                found[type.value] = f"said {failure.fate}, {'open' if identity(number) == before else 'closed'}"
                if identity(number) != before and not handle.closed:
                    handle.detach()
    return found


def fd_after_import(bench: Bench) -> dict[str, str]:
    """Per fd type: what became of a file descriptor that was imported."""
    found = {}
    for type in sorted(bench.device.capabilities.semaphore_import, key=lambda each: each.value):
        shared = bench.semaphore(type.value)
        with bench.peer.export_semaphore(shared.there, bench.importer) as desc:
            own = duplicate(desc)
            token = bench.driver.import_semaphore(desc, own)
            taken = own.closed
            own.close()
            bench.driver.release_semaphore(token)
        found[type.value] = "taken" if taken else "left to the caller"
    return found


def kind_checked(bench: Bench) -> dict[str, str]:
    """Per type: which handles of another sort the driver imports as one of that type."""
    found = {}
    for kind, types in (("semaphore", bench.device.capabilities.semaphore_import),
                        ("memory", bench.device.capabilities.memory_import)):
        for type in sorted(each.value for each in types if each.carrier is Carrier.FD):
            taken = measures.other_sorts_taken(bench, kind, type)
            found[f"{kind}.{type}"] = f"takes {', '.join(taken)}" if taken else "refuses other sorts"
    return found


def size_checked(bench: Bench) -> dict[str, bool]:
    """Per type of memory: whether a size of sixteen times the exporter's is refused."""
    return {type: measures.size_is_checked(bench, type) for type in _memories(bench)}


def overlap_is_coherent(bench: Bench) -> dict[str, bool]:
    """Per type of memory: whether what is written through one of two overlapping mappings is read through the other."""
    found = {}
    for type in _memories(bench):
        _, new, seen = measures.overlap(bench, type)
        found[type] = seen == new
    return found


def _memories(bench: Bench) -> list[str]:
    made = bench.peer.about()["memory_export"]
    return sorted(each.value for each in bench.device.capabilities.memory_import if each.value in made)


def timeline_goes_back(bench: Bench) -> dict[str, str]:
    """Per timeline type: the value after a signal of 5 and then of 3."""
    if Feature.READ_VALUE.value not in bench.peer.about()["features"]:
        return dict.fromkeys((type.value for type in _types(bench, Kind.TIMELINE)), "the exporter cannot read it")
    return {type.value: str(measures.value_after_going_back(bench, type.value))
            for type in _types(bench, Kind.TIMELINE)}


def release_behind_a_wait(bench: Bench) -> str:
    """Whether the driver's own release of an idle semaphore returns while a wait for another one is pending."""
    type = _preferred(bench)
    return f"not known: {_NOT_FIRST}" if type is None else measures.release_behind_a_wait(bench, type)


def free_behind_a_wait(bench: Bench) -> str:
    """Whether the driver's own release of mapped memory returns while any wait is pending."""
    if _preferred(bench) is None or not bench.device.capabilities.memory_import:
        return f"not known: {_NOT_FIRST}, or the device imports no memory"
    return measures.free_behind_a_wait(bench)


def _preferred(bench: Bench) -> str | None:
    """A type that may be waited for before its signal."""
    early = bench.device.capabilities.wait_before_signal
    types = [each for kind in (Kind.TIMELINE, Kind.BINARY) for each in _types(bench, kind) if each in early]
    return types[0].value if types else None


QUIRKS: Final[dict[str, Callable[[Bench], Any]]] = {
    function.__name__: function for function in (
        resets_on_wait, wait_before_signal, pending_appends, fd_after_failed_import, fd_after_import, kind_checked,
        size_checked, overlap_is_coherent, timeline_goes_back, release_behind_a_wait, free_behind_a_wait)
}
