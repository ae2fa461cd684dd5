"""Base classes of all objects with a release: by `release`, by the end of ``with``, or by collection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from xsem.errors import BadArgumentError
from xsem.runtime.device_state import DeviceState
from xsem.runtime.forks import generation
from xsem.runtime.lifetime import Lifetime, Usable
from xsem.spi import Token

if TYPE_CHECKING:
    # The only import from a higher module. The other modules of this package take the name from here.
    from xsem.facade.device import Device as Device  # noqa: PLC0414 - the form that exports a name

__all__ = ["DeviceObject", "Releasable", "Resource"]


class Releasable:
    """Base class of a device and of all objects that are opened on it."""

    _device_state: DeviceState
    _lifetime: Usable

    @property
    def released(self) -> bool:
        """True if the object or its device was released."""
        return self._lifetime.is_released()

    @property
    def native_handle(self) -> int:
        """The vendor's handle of the object, as an int. xsem keeps ownership.

        Raises
        ------
        UnsupportedError
            ``native_handle``: the object has no native handle.
        """
        self._check()
        with self._lifetime.held():
            return self._device_state.driver.native_handle(self._token())

    def release(self) -> None:
        """Release the object.

        The call returns at once. The release takes effect when all earlier appended operations that use the object are
        done. A second call has no effect. In a forked child, the call has no effect.

        Examples
        --------
        >>> import xsem
        >>> with xsem.open_device("host") as device:
        ...     memory = device.create_memory("OPAQUE_FD", 4096)
        ...     memory.release()            # `with device.create_memory(…) as memory:` does the same at its end
        ...     memory.released
        True
        """
        if generation() == self._device_state.generation:
            self._lifetime.release()

    def __reduce__(self) -> object:  # type: ignore[override]
        what = ("send the descriptor that its export() returns, through a channel of multiprocessing, with "
                "xsem.ipc.send or as a ticket of xsem.ipc.offer" if hasattr(self, "export") else
                "make it in the process that uses it")
        raise BadArgumentError(
            f"a {type(self).__name__} belongs to its process and cannot be pickled or copied: {what}",
            reason="object_pickled")

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
        lifetime = getattr(self, "_lifetime", None)   # None if the constructor failed
        if lifetime is not None:
            lifetime.drop()   # calls no driver


class DeviceObject(Releasable):
    """Base class of all objects that are opened on a device."""

    device: Device

    def __init__(self, device: Device, lifetime: Usable) -> None:
        self.device = device
        self._device_state = device._device_state
        self._lifetime = lifetime


class Resource(DeviceObject):
    """Base class of all objects that stand for an object of the driver."""

    _lifetime: Lifetime
