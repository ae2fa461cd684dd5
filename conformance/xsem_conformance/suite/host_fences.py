"""Fences of the host: xsem bridges portable timelines with them (`xsem.spi.HostFences`)."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

from xsem.spi import Token
from xsem_conformance.case.context import CaseContext
from xsem_conformance.case.other_thread import on_another_thread
from xsem_conformance.case.polling import none_of, soon
from xsem_conformance.checks import check
from xsem_conformance.outcomes import Case, expect


@check("XSEM-EVT-011", deadline_s=60)
def operations_wait_for_a_fence_of_the_host(context: CaseContext, case: Case) -> None:
    """Each operation is pending while another fence of the host is reached, and done after its own is reached."""
    # Every second fence is reached by a new thread. Two operations of two queues wait for one fence.
    driver: Any = context.driver
    queues = [driver.create_queue() for _ in range(min(2, context.device.capabilities.independent_lists))]
    for turn, append in enumerate(_operations() * 2):
        other, own, early = (driver.create_host_fence() for _ in range(3))
        expect(not driver.query_fence(own), "a new fence of the host is reached")
        _reach(context, early, turn)
        behind = [append(queue, (early, own)) for queue in queues]
        behind += [queue.append_barrier((), True) for queue in queues]
        _reach(context, other, turn)
        # On another thread, because a create that waits for the operations would never return.
        on_another_thread(lambda: driver.release_fence(driver.create_host_fence()), context.patience_s,
                          "no fence of the host can be made while operations wait")
        none_of(*((functools.partial(driver.query_fence, fence), "an operation was done before its fence of the host")
                  for fence in behind),
                (functools.partial(driver.query_fence, own), "a fence of the host was reached before its reach"))
        _reach(context, own, turn)
        soon(functools.partial(_all_reached, driver, [own, *behind]),
             "an operation is not done after its fence of the host", context.patience_s)
        late = [append(queue, (own,)) for queue in queues]
        soon(functools.partial(_all_reached, driver, late),
             "an operation is not done behind a reached fence of the host", context.patience_s)
        for each in (other, own, early, *behind, *late):
            driver.release_fence(each)
    for queue in queues:
        queue.close()


def _all_reached(driver: Any, fences: list[Token]) -> bool:
    return all(driver.query_fence(each) for each in fences)


def _operations() -> list[Callable[[Any, tuple[Token, ...]], Token]]:
    return [lambda queue, fences: queue.append_barrier(fences, True),
            lambda queue, fences: queue.append_wait((), (), fences, (), True),
            lambda queue, fences: queue.append_signal((), (), fences, (), True)]


def _reach(context: CaseContext, fence: Token, turn: int) -> None:
    driver: Any = context.driver
    began = time.monotonic()
    if turn % 2:
        on_another_thread(lambda: driver.reach_host_fence(fence), context.patience_s,
                          "the reach of a fence of the host does not return")
    else:
        driver.reach_host_fence(fence)
    expect(time.monotonic() - began < context.patience_s / 2, "the reach of a fence of the host blocks")
