"""The append that executes a recording again, with new values for its timelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xsem.runtime.lifetime import Lifetime, QueueProgress
from xsem.runtime.queues.operations import Append, Targets
from xsem.runtime.queues.semaphore_changes import StateChanges
from xsem.runtime.semaphore_state import SemaphoreState
from xsem.spi import RecordingQueue, Token

__all__ = ["Replay"]


class Replay(Append):
    """One replay of a recording."""

    __slots__ = ("_driver", "_recording", "_rewinding", "_signals", "_values", "_waits")

    def __init__(
        self, driver: RecordingQueue, recording: Token, values: Sequence[tuple[Token, int, int]],
        waits: Mapping[SemaphoreState, int | None], signals: Mapping[SemaphoreState, int | None],
        rewinding: set[SemaphoreState], *, lifetimes: Sequence[Lifetime], may_wait: bool,
    ) -> None:
        super().__init__("work", lifetimes, may_wait=may_wait)
        self._driver = driver
        self._recording = recording
        self._values = values   # token, value to wait for and value to signal, of each timeline with new values
        self._waits = waits   # all semaphores of the recording are here and in `_signals`, with this replay's values
        self._signals = signals
        self.paged = tuple([state for state in waits if state.page is not None])
        self._rewinding = rewinding   # timelines with ``allow_rewind`` in the recorded signal, and without a new value

    def begin(self, queue: QueueProgress, seq: int, params: Any, recording: bool) -> StateChanges:
        """Note the use, check the values, and change the state of the signalled semaphores."""
        super().begin(queue, seq, params, recording)
        for state, value in self._waits.items():
            if value is not None:
                state.check_difference(value)
        with StateChanges() as changes:
            for state, value in self._signals.items():
                if value is not None:
                    changes.signal(state, value, allow_rewind=state in self._rewinding)
        return changes

    def call(self, params: Any, fences: Sequence[Token], memories: Sequence[Token], want_fence: bool) -> None:
        """Launch the recording."""
        self._driver.replay(self._recording, self._values)

    def targets(self, params: Any) -> Targets:
        """Return the semaphores that the replay waits for."""
        return tuple(self._waits.items())

    def signals(self, params: Any) -> Targets:
        """Return the semaphores that the replay signals."""
        return tuple(self._signals.items())
