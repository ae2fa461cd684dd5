"""What a device does where the rules leave it a choice: measured, and told as facts, not as verdicts."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from xsem.errors import XsemError
from xsem.handles import OwnedHandle
from xsem.spi import ImportFailure
from xsem.types import Feature, Kind, SemaphoreDesc, SemaphoreHandleType, SignalParams, WaitParams
from xsem_conformance.bench import SETTLE_S, Bench, duplicate, value_of
from xsem_conformance.descriptors import identity, null
from xsem_conformance.outcomes import BlockedError
from xsem_conformance.peer import PeerFailedError

__all__ = ["QUIRKS", "measure"]

_BLOCKS_S: Final = 1.0
_MOST_APPENDS: Final = 4096


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


def resets_on_wait(bench: Bench) -> dict[str, bool]:
    """Per binary type: whether a met wait resets, so that the next one is pending."""
    return {type.value: _resets(bench, type.value) for type in _types(bench, Kind.BINARY)}


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
    types = _types(bench, Kind.TIMELINE) or _types(bench, Kind.BINARY)
    if not types:
        return "not known: the device imports no semaphore"
    shared = bench.semaphore(types[0].value)
    value = value_of(types[0].value)
    commands = bench.driver.create_command_list()
    token = bench.driver_semaphore(shared)
    try:
        commands.append_wait([token], [WaitParams(value=value)], (), (), False)
        count, held = [0], threading.Event()

        def append() -> None:
            while count[0] < _MOST_APPENDS and not held.is_set():
                commands.append_barrier((), False)
                if value is not None:
                    commands.append_signal([token], [SignalParams(value=value + 1 + count[0])], (), (), False)
                count[0] += 1

        thread = threading.Thread(target=append, daemon=True)
        thread.start()
        last = -1
        while thread.is_alive() and count[0] != last:
            last = count[0]
            thread.join(_BLOCKS_S)
        held.set()
        at_once = count[0]
        bench.peer.host_signal(shared.there, value)
        thread.join()
        point = commands.append_barrier((), True)
        while not bench.driver.done(point):
            time.sleep(0.001)
        bench.driver.release_point(point)
        commands.close()
    finally:
        bench.driver.release_semaphore(token)
    return at_once if at_once < _MOST_APPENDS else f"at least {_MOST_APPENDS}"


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


def timeline_goes_back(bench: Bench) -> dict[str, str]:
    """Per timeline type: the value after a signal of 5 and then of 3."""
    found = {}
    for type in _types(bench, Kind.TIMELINE):
        shared, here = bench.semaphore(type.value), bench.here
        commands = here.new_list()
        here.signal(commands, [shared.here], [5])
        here.synchronize(commands, bench.patience_s)
        here.get(commands).append_signal(here.get(shared.here), SignalParams(value=3, allow_rewind=True))
        here.synchronize(commands, bench.patience_s)
        can = Feature.READ_VALUE.value in bench.peer.about()["features"]
        found[type.value] = str(bench.peer.value(shared.there)) if can else "taken; the exporter cannot read it"
    return found


def release_behind_a_wait(bench: Bench) -> str:
    """Whether the driver's own release of a semaphore returns while a wait for it is pending."""
    types = _types(bench, Kind.TIMELINE) or _types(bench, Kind.BINARY)
    if not types:
        return "not known: the device imports no semaphore"
    shared, value = bench.semaphore(types[0].value), value_of(types[0].value)
    token = bench.driver_semaphore(shared)
    commands = bench.driver.create_command_list()
    try:
        commands.append_wait([token], [WaitParams(value=value)], (), (), False)
        time.sleep(SETTLE_S)
        thread = threading.Thread(target=bench.driver.release_semaphore, args=[token], daemon=True)
        thread.start()
        thread.join(_BLOCKS_S)
        blocks = thread.is_alive()
        bench.peer.host_signal(shared.there, value)
        thread.join()
        # xsem never releases what a pending wait uses, so the wait may fail: host's does, or not, as it is in its loop.
        with contextlib.suppress(XsemError):
            point = commands.append_barrier((), True)
            try:
                while not bench.driver.done(point):
                    time.sleep(0.001)
            finally:
                bench.driver.release_point(point)
    finally:
        commands.close()
    return "blocks until the wait is met" if blocks else "returns at once"


def free_behind_a_wait(bench: Bench) -> str:
    """Whether the driver's own release of mapped memory returns while any wait is pending."""
    types = _types(bench, Kind.TIMELINE) or _types(bench, Kind.BINARY)
    if not types or not bench.device.capabilities.memory_import:
        return "not known: the device imports no semaphore, or no memory"
    shared, value = bench.semaphore(types[0].value), value_of(types[0].value)
    memory = bench.memory()
    token = bench.driver_memory(memory)
    buffer, _ = bench.driver.map_buffer(token, 0, 4096)
    waits = bench.here.new_list()
    bench.here.wait(waits, [shared.here], [value])

    def free() -> None:
        bench.driver.unmap_buffer(buffer)
        bench.driver.release_memory(token)

    thread = threading.Thread(target=free, daemon=True)
    thread.start()
    thread.join(_BLOCKS_S)
    blocks = thread.is_alive()
    bench.peer.host_signal(shared.there, value)
    thread.join()
    bench.here.synchronize(waits, bench.patience_s)
    return "blocks until the wait is met" if blocks else "returns at once"


QUIRKS: Final[dict[str, Callable[[Bench], Any]]] = {
    function.__name__: function for function in (
        resets_on_wait, wait_before_signal, pending_appends, fd_after_failed_import, fd_after_import,
        timeline_goes_back, release_behind_a_wait, free_behind_a_wait)
}
