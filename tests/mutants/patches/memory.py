"""Faults in memory that is shared with arrays of other libraries."""

from __future__ import annotations

from typing import Any

import xsem_cuda.device as device
from patches.base import instead, patch
from xsem.errors import UnsupportedError
from xsem_cuda.allocations import create_allocation


@patch
def share_owner_not_kept() -> None:
    """Shared memory does not keep its array."""
    @instead(device, "share_allocation")
    def share(before: Any, *args: Any, **named: Any) -> Any:
        *place, _owner = args
        return before(*place, None, **named)


@patch
def share_owner_kept_for_ever() -> None:
    """Shared arrays stay in a list, also the refused ones."""
    kept = []

    @instead(device, "share_allocation")
    def share(before: Any, *args: Any, **named: Any) -> Any:
        kept.append(args[-1])
        return before(*args, **named)


@patch
def share_copies_what_it_cannot_share() -> None:
    """An array that cannot be shared is copied."""
    @instead(device, "share_allocation")
    def share(before: Any, *args: Any, **named: Any) -> Any:
        try:
            return before(*args, **named)
        except UnsupportedError:
            return _copied(*args)


def _copied(driver: Any, ordinal: int, type: Any, address: int, size: int, owner: Any) -> Any:
    made = create_allocation(driver, ordinal, type, size)
    made._owner = owner
    driver.cuMemcpy(made.base, address, size)
    return made, 0
