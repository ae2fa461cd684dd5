"""What the application lends: its driver, context and device."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Native"]


@dataclass(frozen=True, slots=True)
class Native:
    """The application's own objects, for ``xsem.open_device("levelzero", native=Native(…))``.

    They are handles as the Level Zero loader gave them, are borrowed, and must outlive the device.

    Attributes
    ----------
    driver, context, device : int
        ze_driver_handle_t, ze_context_handle_t, ze_device_handle_t. In Level Zero, memory, events and command lists
        belong to a context, so what xsem makes is usable in this one alone.
    """

    driver: int
    context: int
    device: int
