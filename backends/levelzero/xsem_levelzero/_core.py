"""One device in one context: what all parts of the backend call through."""

from __future__ import annotations

from ctypes import byref
from typing import NamedTuple

from xsem_levelzero import _ze as ze
from xsem_levelzero._functions import Extension, is_immediate_of
from xsem_levelzero._loader import Loader, filled

__all__ = ["Core", "Queues", "create_context", "queues_of"]


class Queues(NamedTuple):
    """The queue group that lists are made on.

    Attributes
    ----------
    ordinal, number : int
        Its number, and how many queues it has: each goes on while others wait.
    fill_pattern : int
        The longest pattern of a fill, in bytes.
    """

    ordinal: int
    number: int
    fill_pattern: int


class Core:
    """Handles as the loader gave them, and the functions to use them with."""

    def __init__(self, loader: Loader, extension: Extension, driver: int, device: int, context: int) -> None:
        self.loader = loader
        self.extension = extension
        self.driver = driver
        self.device = device
        self.context = context
        self.queues = queues_of(loader, device)
        # As the extension's functions take it; translated here and nowhere else.
        self.extension_device = extension.device(device)
        self.is_immediate = is_immediate_of(loader, driver)

    def properties(self) -> ze.DeviceProperties:
        """Call zeDeviceGetProperties."""
        struct: ze.DeviceProperties = filled(ze.DeviceProperties, self.loader, "zeDeviceGetProperties", self.device)
        return struct

    def create_list(self, index: int) -> tuple[int, bool]:
        """An immediate, asynchronous list on one queue of the group; and whether it is in order by itself."""
        for flags in (ze.QUEUE_IN_ORDER, 0):
            desc = ze.QueueDesc.made(ordinal=self.queues.ordinal, index=index % self.queues.number, flags=flags,
                                     mode=ze.QUEUE_MODE_ASYNCHRONOUS)
            try:
                made = self.loader.make("zeCommandListCreateImmediate", self.context, self.device, byref(desc))
            except Exception:
                # A driver of before 1.6 does not know the flag; then barriers do it.
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
