"""Native events and failing work of the host, for the conformance suite."""

from __future__ import annotations

import threading
from collections.abc import Callable

from xsem.spi import NativeEvent, QueueDriver, SuiteHooks

__all__ = ["HostHooks"]


class HostHooks(SuiteHooks):
    """The native event of `host` is a `threading.Event`. `host` does not support native queues."""

    def native_event(self) -> NativeEvent:
        """Create an unset `threading.Event`."""
        event = threading.Event()
        return NativeEvent(event=event, reach=event.set, works=event.is_set)

    def failing_work(self) -> Callable[[QueueDriver], None]:
        """Return a function that appends a raising Python function as work."""
        return lambda queue: queue.append_work(_fail)


def _fail() -> None:
    raise RuntimeError("this work fails, as the conformance suite requires")
