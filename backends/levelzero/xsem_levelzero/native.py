"""The application's driver, context and device, for ``native=``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Native"]


@dataclass(frozen=True, slots=True)
class Native:
    """The application's own driver, context and device, for ``native=``.

    The handles are those of the Level Zero loader. xsem borrows the objects and never destroys them. They must outlive
    the xsem device. xsem closes its events in the context on its own thread after ``release()``. The context must
    therefore live until ``device.releasing()`` is empty or the process ends.

    In Level Zero, memory, events and command lists belong to a context. The objects that xsem creates are usable only
    in this context.

    Attributes
    ----------
    driver : int
        ze_driver_handle_t.
    context : int
        ze_context_handle_t.
    device : int
        ze_device_handle_t: a GPU, or a tile of it (a sub-device, in the COMPOSITE hierarchy).

    Examples
    --------
    >>> native = xsem_levelzero.Native(ze_driver, ze_context, ze_device)  # doctest: +SKIP
    >>> device = xsem.open_device("levelzero", native=native)  # doctest: +SKIP
    """

    driver: int
    context: int
    device: int
