"""The hook of a plugin, and the version of the driver interface."""

from __future__ import annotations

from typing import Final, Protocol

from pluggy import HookimplMarker, HookspecMarker

from xsem.spi.backend import Backend

__all__ = ["SPI_OLDEST", "SPI_VERSION", "Register", "hookimpl", "hookspec", "xsem_register_backends"]

SPI_VERSION: Final = 2
"""The version of the driver interface that this xsem implements."""
SPI_OLDEST: Final = 2
"""The oldest version that this xsem accepts. Each version is accepted for two minor releases after its successor."""

hookimpl: Final = HookimplMarker("xsem")
"""Decorator for a plugin's implementation of `xsem_register_backends`."""
hookspec: Final = HookspecMarker("xsem")


class Register(Protocol):
    """The function that the hook receives. The hook calls the function once for each backend."""

    def __call__(self, backend: Backend, /) -> None:
        """Register one backend.

        Parameters
        ----------
        backend : Backend
            The backend. xsem keeps a reference to it.
        """


@hookspec
def xsem_register_backends(register: Register) -> None:
    """Register the backends of a plugin. This is the only hook.

    An entry point of the group ``xsem`` names the module of the hook. The import of this module must work without the
    vendor library.

    Parameters
    ----------
    register : Register
        Function to call once for each backend.

    Examples
    --------
    ::

        @hookimpl
        def xsem_register_backends(register: Register) -> None:
            register(AcmeBackend())
    """
