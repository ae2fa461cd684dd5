"""A backend: its devices and its checks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from uuid import UUID

from xsem.errors import UnsupportedError, XsemError, what
from xsem.spi.device import DeviceDriver
from xsem.spi.suite_hooks import SuiteHooks
from xsem.types import DeviceInfo, HealthCheck

__all__ = ["Backend", "failed_check"]


def failed_check(name: str, error: Exception, remedy: str = "") -> HealthCheck:
    """Make a failed check from an error, for `Backend.checks`.

    Parameters
    ----------
    name : str
        Name of the checked item.
    error : Exception
        An `XsemError` gives its message and the driver's code as `HealthCheck.detail`, and its likely causes as
        `HealthCheck.causes`.
    remedy : str
        Instruction to the user.

    Returns
    -------
    HealthCheck
        A check with ``ok=False``.

    Examples
    --------
    >>> failed_check("driver", OSError("libacme.so is missing"), "install the Acme driver").detail
    'OSError: libacme.so is missing'
    """
    if isinstance(error, XsemError):
        return HealthCheck(name=name, ok=False, detail=what(error), remedy=remedy, causes=error.likely_causes)
    return HealthCheck(name=name, ok=False, detail=f"{type(error).__name__}: {error}", remedy=remedy)


class Backend(ABC):
    """One vendor API.

    The plugin creates the backend when xsem loads the plugin. The backend loads the vendor library in `devices` or
    later, never earlier.

    Examples
    --------
    >>> class AcmeBackend(Backend):
    ...     name = "acme"
    ...     spi_version = 2
    ...     def devices(self):
    ...         return [DeviceInfo(id="acme:0", backend="acme", index=0, name="Acme")]
    ...     def open(self, index):
    ...         return AcmeDevice()
    >>> AcmeBackend().devices()[0].id
    'acme:0'
    """

    name: ClassVar[str]
    """Name of the backend, for example ``"acme"``. Users write it before the colon of a device's id."""
    spi_version: ClassVar[int]
    """Version of the driver interface that the backend implements: a literal such as ``2``, not `SPI_VERSION`."""
    exporter_of: Callable[[UUID], Callable[[], DeviceDriver] | None] = staticmethod(lambda uuid: None)
    """Set by xsem when the backend is registered. Called with the UUID of a GPU, it returns a function that opens the
    GPU's Vulkan device, or None. The driver that this function returns belongs to the backend, which closes it. An API
    whose fences the host cannot reach can so bridge portable timelines (`HostFences`) by timelines of that driver."""

    @abstractmethod
    def devices(self) -> Sequence[DeviceInfo]:
        """List all devices.

        Returns
        -------
        sequence of DeviceInfo
            In the driver's order. The ``index`` of each device is its position.

        Raises
        ------
        BackendUnavailableError
            The vendor library, a package or a permission is missing. The message names the missing item and says what
            to do.
        """

    @abstractmethod
    def open(self, index: int) -> DeviceDriver:
        """Open a device.

        Parameters
        ----------
        index : int
            Position of the device in `devices`.

        Returns
        -------
        DeviceDriver
            A new driver at each call. The facade calls its `DeviceDriver.close` once.

        Raises
        ------
        XsemError
            The device cannot be opened.
        """

    def borrow(self, native: object) -> tuple[DeviceInfo, DeviceDriver]:
        """Open a device on the application's own context or device. Declared by Feature.NATIVE_CONTEXT.

        Parameters
        ----------
        native : object
            The application's context or device. The application keeps ownership, on success and on failure, and keeps
            `native` valid until `DeviceDriver.close` returns. The driver does not destroy `native`.

        Returns
        -------
        DeviceInfo
            Description of the device.
        DeviceDriver
            A new driver at each call. The facade calls its `DeviceDriver.close` once.

        Raises
        ------
        BadArgumentError
            ``bad_native``: the backend does not accept `native`. The message names the accepted objects.
        UnsupportedError
            The backend does not declare Feature.NATIVE_CONTEXT (default).
        """
        raise UnsupportedError(f"{self.name} cannot borrow a native context", capability="native_context")

    def details(self, index: int) -> Mapping[str, str]:
        """Return more facts about a device, for ``xsem devices --json``: for example versions.

        Parameters
        ----------
        index : int
            Position of the device in `devices`.

        Returns
        -------
        mapping of str to str
            Fact by name. Default: empty.
        """
        return {}

    def suite_hooks(self, driver: DeviceDriver) -> SuiteHooks:
        """Return native objects and failing work for the conformance suite.

        Parameters
        ----------
        driver : DeviceDriver
            A driver of `open`.

        Returns
        -------
        SuiteHooks
            Default: no hooks.
        """
        return SuiteHooks()

    def libraries(self, index: int) -> Sequence[Path | str]:
        """Name the vendor's libraries that execute the calls of a device, for the reports of the conformance suite.

        A report contains the file names and a SHA-256 of each file, so that results of two libraries differ. The suite
        calls this method while the device is open.

        Parameters
        ----------
        index : int
            Position of the device in `devices`.

        Returns
        -------
        sequence of Path or str
            Each library as its file (`loaded_library`), or as a text with its name and version if the file is not known
            or does not identify the driver. Default: empty.
        """
        return ()

    def checks(self) -> Sequence[HealthCheck]:
        """Check libraries, permissions and kernel abilities, for ``xsem doctor``. It never raises.

        Returns
        -------
        sequence of HealthCheck
            Default: empty. `failed_check` makes a check from an error.
        """
        return ()
