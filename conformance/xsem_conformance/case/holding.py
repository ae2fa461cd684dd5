"""Hold signals back, so that a check can observe pending waits.

If the consumer may wait before the signal is submitted, the signal is made after the observation. Otherwise the signal
is submitted first, behind long work, and an observation counts only if that work still runs after it.

The second case is a binary semaphore in Vulkan. VUID-vkQueueSubmit-pWaitSemaphores-03238 requires that the signal and
all signals that it depends on are submitted, so a gate cannot hold it back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from xsem.errors import UnsupportedError
from xsem_conformance.case.case_participant import CaseParticipant
from xsem_conformance.case.polling import SETTLE_S
from xsem_conformance.case.remote_participant import ParticipantFailedError
from xsem_conformance.outcomes import BlockedError, expect

__all__ = ["TOO_SOON", "Hold", "held"]

TOO_SOON: Final = "the work that held its signal back was done too soon"
"""The reason of a case that can be tried again: other processes disturbed the estimate of the work."""
_WORK_S = 1.0
"""Seconds of work: far more than an observation takes. If the work ends too soon, the case is blocked, never failed."""


class Hold:
    """A signal that is held back."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self._over = over

    def pending(self, done: Callable[[], bool], what: str) -> None:
        """Check that an operation that waits for the signal stays pending; BLOCKED if the signal cannot be held."""
        seen = False
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            reached = done()
            if self._over():
                break   # the operation may have finished after the signal
            expect(not reached, f"{what} was done before its signal")
            seen = True
            time.sleep(SETTLE_S / 10)
        if not seen:
            raise BlockedError(f"{what} could not be watched: {TOO_SOON}")


@contextmanager
def held(
    producer: CaseParticipant, consumer: CaseParticipant, signals: int, type: str, submit: Callable[[], object]
) -> Iterator[Hold]:
    """Hold back the appends of `submit` on the producer's list `signals`; the caller appends its waits inside."""
    # The last append of `submit` signals a semaphore of `type`.
    if consumer.waits_early(type):
        yield Hold(lambda: False)
        submit()
        return
    try:
        end = producer.occupy(signals, _WORK_S)
    except (UnsupportedError, ParticipantFailedError) as error:
        raise BlockedError(f"nothing can hold {producer.name} back: {error}") from error
    submit()
    # Not the end of the list: that is seen later than the signal, so a wait in between would count as too early.
    yield Hold(lambda: producer.reached(end))
