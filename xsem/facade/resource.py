"""Base of everything that is released: idempotent, at the end of ``with``, or when dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from xsem.runtime.device_state import DeviceState
from xsem.runtime.forks import generation
from xsem.runtime.lifetime import Lifetime
from xsem.spi import Token

if TYPE_CHECKING:
    # The one import upwards; the other modules of this room take the name from here.
    from xsem.facade.device import Device as Device  # noqa: PLC0414 - the form that exports a name

__all__ = ["Resource"]


class Resource:
    """Something opened on a device.

    `release` returns at once, is idempotent, and takes effect when everything appended so far that uses the object is
    done. Leaving a ``with`` block releases. Using a released object raises `ReleasedError`; using one that was opened
    before ``os.fork()`` raises `ForkedError`.
    """

    _device_state: DeviceState
    _lifetime: Lifetime

    def __init__(self, device: Device, lifetime: Lifetime) -> None:
        self.device = device
        self._device_state = device._device_state
        self._lifetime = lifetime

    @property
    def released(self) -> bool:
        """Whether it, or its device, was released."""
        return self._lifetime.released

    @property
    def native_handle(self) -> int:
        """The vendor's handle, as an int; it stays xsem's.

        Raises
        ------
        UnsupportedError
            ``native_handle``: there is none.
        """
        self._check()
        with self._lifetime.held():
            return self._device_state.driver.native_handle(self._token())

    def release(self) -> None:
        """Give it up; returns at once, and does nothing the second time (or in a forked child)."""
        if generation() == self._device_state.generation:
            self._lifetime.release()

    def _token(self) -> Token | None:
        raise NotImplementedError

    def _check(self) -> None:
        self._device_state.check()
        self._lifetime.check()

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()

    def __del__(self) -> None:
        # A constructor that failed left no record; a finalizer calls no driver.
        lifetime = getattr(self, "_lifetime", None)
        if lifetime is not None:
            lifetime.drop()
