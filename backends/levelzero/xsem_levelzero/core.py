"""One device in one context: the object through which all parts of the backend call the loader."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref
from typing import NamedTuple

from xsem.errors import XsemError
from xsem_levelzero import ze
from xsem_levelzero.functions import Extension, is_immediate_of
from xsem_levelzero.loader import Loader, filled

__all__ = ["Core", "Queues", "context_of_probe", "create_context", "own_queues", "queues_of"]


class Queues(NamedTuple):
    """The queue group on which lists are created.

    Attributes
    ----------
    ordinal : int
        Index of the group.
    number : int
        Number of its queues. Each queue continues while others wait.
    fill_pattern : int
        Length of the longest fill pattern, in bytes.
    """

    ordinal: int
    number: int
    fill_pattern: int


class Core:
    """Handles from the loader, and the functions that use them.

    Attributes
    ----------
    has_remains : bool
        An object of the context could not be destroyed. Then the context must not be destroyed, either.
    """

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
        self.has_remains = False

    def destroy(self, name: str, *arguments: int) -> None:
        """Destroy an object of the context, as `Loader.end` does.

        Raises
        ------
        XsemError
            The object stays, and the context must stay, too (`has_remains`).
        """
        try:
            self.loader.end(name, *arguments)
        except XsemError:
            self.has_remains = True
            raise

    def properties(self) -> ze.DeviceProperties:
        """Call zeDeviceGetProperties."""
        struct: ze.DeviceProperties = filled(ze.DeviceProperties, self.loader, "zeDeviceGetProperties", self.device)
        return struct

    def create_side_list(self) -> int:
        """Create an immediate list on an engine that own lists do not use, if there is one: see `own_queues`.

        Returns
        -------
        int
            The ze_command_list_handle_t, owned by the caller.
        """
        ordinal = _copy_group(self.loader, self.device)
        if ordinal is None:
            return self.create_list(self.queues.number - 1)[0]
        desc = ze.QueueDesc.made(ordinal=ordinal, index=0, flags=0, mode=ze.QUEUE_MODE_ASYNCHRONOUS)
        return self.loader.make("zeCommandListCreateImmediate", self.context, self.device, byref(desc))

    def create_list(self, index: int) -> tuple[int, bool]:
        """Create an immediate, asynchronous list on one queue of the group.

        Returns
        -------
        tuple of (int, bool)
            The ze_command_list_handle_t, owned by the caller, and whether the list is in order by itself.
        """
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


def _copy_group(loader: Loader, device: int) -> int | None:
    """The first group whose engines only copy, so that no wait of a compute list stalls them."""
    groups = loader.structs(ze.QueueGroup, "zeDeviceGetCommandQueueGroupProperties", device)
    return next((ordinal for ordinal, each in enumerate(groups)
                 if each.flags & ze.GROUP_COPY and not each.flags & ze.GROUP_COMPUTE and each.numQueues), None)


def queues_of(loader: Loader, device: int) -> Queues:
    """The compute group with the most queues."""
    groups = loader.structs(ze.QueueGroup, "zeDeviceGetCommandQueueGroupProperties", device)
    found = [Queues(ordinal, each.numQueues, each.maxMemoryFillPatternSize)
             for ordinal, each in enumerate(groups) if each.flags & ze.GROUP_COMPUTE and each.numQueues]
    return max(found, key=lambda each: each.number, default=Queues(0, 1, 1))


def own_queues(loader: Loader, device: int, *, late: bool) -> int:
    """Return the number of queues for own lists.

    Parameters
    ----------
    late : bool
        The driver makes signals after their event. Then a GPU without an engine that only copies keeps its last queue
        free for the waits of `xsem_levelzero.intel.passes`. A GPU with one queue cannot.
    """
    number = queues_of(loader, device).number
    return number - 1 if late and number > 1 and _copy_group(loader, device) is None else number


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
