"""One device in one context: the object through which all parts of the backend call the loader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref
from typing import NamedTuple

from xsem.errors import XsemError
from xsem_levelzero import ze
from xsem_levelzero.extension import Extension, is_immediate_of
from xsem_levelzero.loader import Loader

__all__ = ["Core", "Queues", "context_of_probe", "create_context", "queues_of"]


class Queues(NamedTuple):
    """The queue group on which lists are created."""

    ordinal: int        # of the group
    number: int         # of its queues; each queue continues while others wait
    fill_pattern: int   # bytes of the longest fill pattern


class Core:
    """Handles from the loader, and the functions that use them."""

    def __init__(self, loader: Loader, extension: Extension, driver: int, device: int, context: int) -> None:
        self.loader = loader
        self.extension = extension
        self.driver = driver
        self.device = device
        self.context = context
        self.queues = queues_of(loader, device)
        # In the form that the extension's functions take. This is the only translation of the device handle.
        self.extension_device = extension.device(device)
        self.is_immediate = is_immediate_of(loader, driver)
        # An object of the context could not be destroyed. Then the context must not be destroyed, either.
        self.has_remains = False

    def destroy(self, name: str, *arguments: int) -> None:
        """Destroy an object of the context, as `Loader.end` does. After an error the object and the context stay."""
        try:
            self.loader.end(name, *arguments)
        except XsemError:
            self.has_remains = True
            raise

    def create_list(self, index: int) -> tuple[int, bool]:
        """Create an immediate, asynchronous list of the caller. Return it, and whether it is in order by itself."""
        for flags in (ze.QUEUE_IN_ORDER, 0):
            desc = ze.QueueDesc.made(ordinal=self.queues.ordinal, index=index % self.queues.number, flags=flags,
                                     mode=ze.QUEUE_MODE_ASYNCHRONOUS)
            try:
                made = self.loader.make("zeCommandListCreateImmediate", self.context, self.device, byref(desc))
            except Exception:
                # A driver older than 1.6 does not know the flag. The backend then appends barriers.
                if not flags:
                    raise
            else:
                return made, bool(flags)
        raise AssertionError("not reached")


def queues_of(loader: Loader, device: int) -> Queues:
    """The compute group with the most queues."""
    groups = loader.structs(ze.QueueGroup, "zeDeviceGetCommandQueueGroupProperties", device)
    found = [Queues(ordinal, each.numQueues, each.maxMemoryFillPatternSize)
             for ordinal, each in enumerate(groups) if each.flags & ze.GROUP_COMPUTE and each.numQueues]
    return max(found, key=lambda each: each.number, default=Queues(0, 1, 1))


def create_context(loader: Loader, driver: int) -> int:
    """Call zeContextCreate."""
    return loader.make("zeContextCreate", driver, byref(ze.ContextDesc.made()))


@contextmanager
def context_of_probe(loader: Loader, extension: Extension, driver: int, device: int) -> Iterator[Core]:
    """Create a context for a probe, and destroy it unless an object of the probe stays."""
    context = create_context(loader, driver)
    core = None
    try:
        core = Core(loader, extension, driver, device, context)
        yield core
    finally:
        if core is None or not core.has_remains:
            loader.end("zeContextDestroy", context)
