"""Signals that are held back, so that what waits for them can be seen pending.

Where the consumer may wait before the signal is submitted, the signal is made only after the look. Elsewhere (a binary
semaphore in Vulkan: VUID-vkQueueSubmit-pWaitSemaphores-03238 wants the signal submitted, and all signals that it
depends on, so that no gate will do) it is submitted first, behind work that takes long, and the look counts only as
long as that work is seen to go on afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from xsem.errors import UnsupportedError
from xsem_conformance.context import SETTLE_S, CaseParticipant
from xsem_conformance.outcomes import BlockedError, expect
from xsem_conformance.remote_participant import ParticipantFailedError

__all__ = ["Hold", "held"]

_WORK_S = 1.0
"""Seconds of work: far more than a look takes. Where it was not enough the case is blocked, never failed."""


class Hold:
    """A signal that has not been made yet; `over` says whether that is no longer so."""

    def __init__(self, over: Callable[[], bool]) -> None:
        self._over = over

    def pending(self, done: Callable[[], bool], what: str) -> None:
        """What waits for the signal is not done, and does not get there by itself.

        Raises
        ------
        BlockedError
            The work that holds the signal back came to its end before anything could be seen.
        """
        seen = False
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            reached = done()
            if self._over():
                break   # what was reached may have been reached since
            expect(not reached, f"{what} was done before its signal")
            seen = True
            time.sleep(SETTLE_S / 10)
        if not seen:
            raise BlockedError(f"{what} could not be watched: the work that held its signal back was done too soon")


@contextmanager
def held(
    producer: CaseParticipant, consumer: CaseParticipant, signals: int, type: str, submit: Callable[[], object]
) -> Iterator[Hold]:
    """Inside, what `submit` appends to the producer's list `signals`, a signal of `type` last, has not been made.

    The consumer's waits are to be appended inside.

    Raises
    ------
    BlockedError
        The consumer may not wait first, and the producer has no work to hold the signal back with.
    """
    if consumer.waits_early(type):
        yield Hold(lambda: False)
        submit()
        return
    try:
        producer.occupy(signals, _WORK_S)
    except (UnsupportedError, ParticipantFailedError) as error:
        raise BlockedError(f"nothing can hold {producer.name} back: {error}") from error
    submit()
    yield Hold(lambda: producer.done(signals))
