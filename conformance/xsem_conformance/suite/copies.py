"""Copies and fills: their events, and the moment at which their bytes are there."""

from __future__ import annotations

from collections.abc import Callable

from xsem import Event
from xsem.spi import CopyQueue, HostMemory
from xsem_conformance.case import measures
from xsem_conformance.case.context import MEMORY_SIZE, CaseContext
from xsem_conformance.case.gates import Gates
from xsem_conformance.case.polling import never
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, NotExaminedError, expect

_SIZE = 4096


@check("XSEM-EVT-011", deadline_s=60)
def copy_waits_for_each_of_its_events(context: CaseContext, case: Case) -> None:
    """A fill and a copy change no byte while any one of their events is not reached; their event comes after them."""
    driver = context.driver
    queue = driver.create_queue()
    able = isinstance(queue, CopyQueue) and isinstance(driver, HostMemory)
    queue.close()
    if not able:
        raise NotExaminedError("not declared: the driver appends no copies")
    gates = Gates(context, context.some_type())
    shared = context.memory(MEMORY_SIZE)
    buffer = context.here.get(shared.here).map_buffer(0, _SIZE)
    host = context.device.host_buffer(_SIZE)
    view = host.numpy()
    commands = context.device.create_command_list()
    operations: list[tuple[str, Callable[[list[Event], Event, int], None]]] = [
        ("a fill", lambda events, after, value: commands.append_fill(
            buffer, bytes([value]), wait_events=events, signal_event=after)),
        ("a copy", lambda events, after, value: commands.append_copy(
            buffer, host, wait_events=events, signal_event=after)),
    ]
    last = len(gates) - 1
    turns = [(what, append, missing) for what, append in operations for missing in sorted({0, last})]
    before = bytes(_SIZE)
    for value, (what, append, missing) in enumerate(turns, 1):
        view[:] = value
        after, events = context.device.create_event(), gates.close()
        append(events, after, value)
        gates.open_all_but(missing)
        never(after.query, f"{what} was done before event {missing + 1} of {len(gates)}")
        expect(measures.read_there(context, shared, _SIZE) == before,
               f"{what} changed bytes before event {missing + 1} of {len(gates)}")
        gates.open(missing)
        after.wait(timeout_s=context.patience_s)
        before = bytes([value]) * _SIZE
        expect(measures.read_there(context, shared, _SIZE) == before,
               f"the event of {what} was reached, and the bytes are not there")
