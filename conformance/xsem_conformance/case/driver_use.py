"""Use of an object that a check imported through the driver: a signal or written bytes must reach the exporter."""

from __future__ import annotations

from xsem.spi import DeviceDriver, QueueDriver, Token
from xsem.types import SignalParams
from xsem_conformance.case import measures
from xsem_conformance.case.case_participant import Shared
from xsem_conformance.case.context import CaseContext, value_of
from xsem_conformance.case.polling import soon
from xsem_conformance.outcomes import Case, Symptom, expect

__all__ = ["finish", "release", "works"]


def works(context: CaseContext, case: Case, token: Token, shared: Shared) -> None:
    """Check that the imported object of a case works."""
    if case.kind == "memory":
        _fills(context, token, shared)
    else:
        _signals(context, token, shared, case.handle_type)


def _fills(context: CaseContext, token: Token, shared: Shared) -> None:
    """Fill the first 256 bytes of imported memory; the exporter reads them."""
    buffer, _ = context.driver.map_buffer(token, 0, 4096)
    commands = context.driver.create_queue()
    fence = commands.append_fill(buffer, 0, b"\x5a", 256, (), True)
    finish(context.driver, commands, fence, "a fill", context.patience_s)
    context.driver.unmap_buffer(buffer)
    expect(measures.read_there(context, shared, 256) == b"\x5a" * 256, "the exporter does not see the fill",
           Symptom.OTHER_BYTES)


def _signals(context: CaseContext, token: Token, shared: Shared, type: str) -> None:
    """Signal an imported semaphore; the exporter's host waits for the signal."""
    value = value_of(type)
    commands = context.driver.create_queue()
    fence = commands.append_signal([token], [SignalParams(value=value)], (), (), True)
    finish(context.driver, commands, fence, "a signal", context.patience_s)
    context.arrives(shared, value)


def release(context: CaseContext, token: Token, kind: str) -> None:
    """Release a semaphore or memory through the driver."""
    (context.driver.release_memory if kind == "memory" else context.driver.release_semaphore)(token)


def finish(driver: DeviceDriver, commands: QueueDriver, fence: Token | None, what: str, patience_s: float,
           symptom: Symptom = Symptom.NOT_DONE) -> None:
    """Wait for the fence of the last append to a queue. Release the fence, and close the queue."""
    soon(lambda: driver.query_fence(fence), f"{what} is not done", patience_s, symptom)
    driver.release_fence(fence)
    commands.close()
