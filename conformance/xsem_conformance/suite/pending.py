"""Effects of an unmet wait on appends behind it and on releases beside it."""

from __future__ import annotations

from xsem.types import SemaphoreKind
from xsem_conformance.case import measures
from xsem_conformance.case.context import CaseContext
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, expect


@check("XSEM-CAP-005", deadline_s=60)
def as_many_appends_as_declared_return_behind_a_wait(context: CaseContext, case: Case) -> None:
    """The declared number of appends to the driver behind a held wait return, and all complete once it is met."""
    declared = context.driver.capabilities
    most = measures.MOST_APPENDS if declared.append_never_blocks else min(declared.max_pending or 0, 1 << 16)
    made = context.peer.about()["semaphore_export"]
    timeline = any(each.kind is SemaphoreKind.TIMELINE and each.value in made for each in declared.semaphore_import)
    type = context.some_type(SemaphoreKind.TIMELINE if timeline else None)
    found = measures.pending_appends(context, type, most, context.patience_s)
    expect(found >= most, f"{found} appends behind an unmet wait returned, but {most} are declared")


@check("XSEM-LIFE-005")
def memory_is_freed_while_a_wait_is_pending(context: CaseContext, case: Case) -> None:
    """The driver's unmapping and release of memory return before another list's wait is met."""
    expect(measures.free_behind_a_wait(context, hold_s=context.patience_s) == measures.AT_ONCE,
           "unmapping and releasing memory did not return before the wait of another list was met")


@check("XSEM-LIFE-006")
def release_while_a_wait_is_pending(context: CaseContext, case: Case) -> str:
    """Report whether the driver's release of a semaphore, or unmapping of memory, returns while a wait is pending."""
    if case.kind == "memory":
        return f"unmapping and releasing memory {measures.free_behind_a_wait(context, case.handle_type)}"
    return f"releasing a semaphore {measures.release_behind_a_wait(context, case.handle_type)}"
