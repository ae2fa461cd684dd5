"""Abilities of a device with semaphores."""

from __future__ import annotations

from abc import ABC, abstractmethod

from xsem.spi.imports import Imported
from xsem.spi.tokens import Token
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreHandleType

__all__ = ["HostSemaphore", "NvSciSync", "SemaphoreExport", "SemaphoreImport", "Semaphores"]


class Semaphores(ABC):
    """The common part of `SemaphoreImport` and `SemaphoreExport`."""

    @abstractmethod
    def release_semaphore(self, semaphore: Token) -> None:
        """Release an imported or created semaphore. Called once, when no appended work uses it any more.

        This method may block unless `Capabilities.release_never_blocks` is declared.
        """


class SemaphoreImport(Semaphores):
    """Import of semaphores. Declared by `Capabilities.semaphore_import`."""

    @abstractmethod
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
        """Import a semaphore of a type in `Capabilities.semaphore_import`.

        Parameters
        ----------
        desc : SemaphoreDesc
            Description of the semaphore, checked by the facade.
        handle : OwnedHandle or None
            A duplicate of the application's fd or NT handle, for this call only. None if `desc` has no fd and no NT
            handle. The driver neither closes nor detaches `handle`: the result says what became of it, and the facade
            acts on that.

        Returns
        -------
        Imported
            The semaphore, and the state of the duplicate. The facade releases the semaphore with `release_semaphore`.

        Raises
        ------
        ImportFailure
            The import failed. After any other exception, the state of the duplicate is unknown.
        """


class SemaphoreExport(Semaphores):
    """Semaphores that the device creates and exports. Declared by `Capabilities.semaphore_export`."""

    @abstractmethod
    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> Token:
        """Create an exportable semaphore.

        Parameters
        ----------
        type : SemaphoreHandleType
            A type in `Capabilities.semaphore_export`.
        initial_value : int
            First value of a timeline; 0 for a binary semaphore.

        Returns
        -------
        Token
            The semaphore. The facade releases it with `release_semaphore`.
        """

    @abstractmethod
    def export_semaphore(self, semaphore: Token) -> OwnedHandle | None:
        """Export a semaphore of `create_semaphore`.

        For a sync file, the facade calls this method at most once after each appended signal. The export consumes that
        signal.

        Parameters
        ----------
        semaphore : Token
            A semaphore of `create_semaphore`.

        Returns
        -------
        OwnedHandle or None
            A new handle at each call, owned by the caller. None for a sync file whose signal has completed already.
        """


class HostSemaphore(ABC):
    """Semaphores on the host. Declared by Feature.READ_VALUE, HOST_SIGNAL and HOST_WAIT.

    The method of a feature that is not declared is never called.
    """

    @abstractmethod
    def semaphore_value(self, semaphore: Token) -> int:
        """Return the current value of a timeline. Declared by Feature.READ_VALUE."""

    @abstractmethod
    def host_signal(self, semaphore: Token, value: int | None) -> None:
        """Signal a semaphore from the host. Declared by Feature.HOST_SIGNAL.

        Parameters
        ----------
        semaphore : Token
            An imported or created semaphore.
        value : int or None
            New value of a timeline; None for a binary semaphore.
        """

    @abstractmethod
    def host_wait(self, semaphore: Token, value: int | None, timeout_ns: int) -> bool:
        """Wait for a semaphore on the host. Declared by Feature.HOST_WAIT.

        A wait that succeeds resets a binary semaphore. The facade divides long waits into calls of at most 50 ms.

        Parameters
        ----------
        semaphore : Token
            An imported or created semaphore.
        value : int or None
            Value of a timeline to wait for; None for a binary semaphore.
        timeout_ns : int
            Longest time to block, in nanoseconds.

        Returns
        -------
        bool
            True if the wait succeeded; False if `timeout_ns` elapsed first.
        """


class NvSciSync(ABC):
    """The device's requirements for NvSciSync objects. Declared by NVSCISYNC in `Capabilities.semaphore_import`."""

    @abstractmethod
    def nvscisync_attributes(self, attributes: int, signal: bool, wait: bool) -> None:
        """Write the device's requirements for an NvSciSync object into an attribute list.

        Parameters
        ----------
        attributes : int
            The NvSciSyncAttrList. The application keeps ownership.
        signal, wait : bool
            Intended use of the NvSciSync object.
        """
