"""Faults in recordings: the time of a run, and its values."""

from __future__ import annotations

from typing import Any

from patches.base import instead, patch
from xsem_cuda.queue import StreamQueue
from xsem_cuda.recording import Graphs, Recorded
from xsem_cuda.results import call


@patch
def replay_values_dropped() -> None:
    """A replay uses the recorded values."""
    @instead(Recorded, "write")
    def write(before: Any, self: Any, values: Any) -> None:
        before(self, {})


@patch
def replay_values_swapped() -> None:
    """A replay exchanges the values of its wait and its signal."""
    @instead(Recorded, "write")
    def write(before: Any, self: Any, values: Any) -> None:
        before(self, {key: (signal, wait) for key, (wait, signal) in values.items()})


@patch
def replay_not_launched() -> None:
    """A replay sets its values and is not launched."""
    @instead(Graphs, "replay")
    def replay(before: Any, self: Any, recorded: Any, values: Any) -> None:
        recorded.write(values)


@patch
def recorded_runs_at_once() -> None:
    """Recorded operations run once when the recording ends."""
    @instead(StreamQueue, "end_recording")
    def end_recording(before: Any, self: Any) -> Any:
        recorded = before(self)
        self.replay(recorded, [])
        return recorded


@patch
def recorded_fill_runs_at_once() -> None:
    """A recorded fill runs when it is recorded, and in no replay."""
    @instead(StreamQueue, "append_fill")
    def append_fill(before: Any, self: Any, *args: Any) -> Any:
        if not self._calls.captured:
            return before(self, *args)
        with self._context:
            call(self._driver.cuMemsetD8, args[0].address + args[1], args[2][0], args[3])
        return self.append_barrier(args[4], args[5])
