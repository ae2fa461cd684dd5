"""Abilities of a device with semaphores."""

from __future__ import annotations

from abc import ABC, abstractmethod

from xsem.portable import Timeline
from xsem.spi.imports import Imported
from xsem.spi.tokens import Token
from xsem.types import OwnedHandle, SemaphoreDesc, SemaphoreHandleType

__all__ = [
    "HostFences", "HostSemaphore", "HostTimelines", "NvSciSync", "SemaphoreExport", "SemaphoreImport", "Semaphores",
]


class Semaphores(ABC):
    """The common part of `SemaphoreImport` and `SemaphoreExport`."""

    release_semaphore_blocks: bool = True
    """Whether `release_semaphore` may block behind an unmet wait. False: the facade releases each semaphore as soon as
    its own work is done, also while other waits are pending. No effect with `Capabilities.release_never_blocks`."""

    @abstractmethod
    def release_semaphore(self, semaphore: Token) -> None:
        """Release an imported or created semaphore. Called once, when no appended work uses the semaphore any more.

        This method may block unless `Capabilities.release_never_blocks` is declared or `release_semaphore_blocks` is
        False.

        Parameters
        ----------
        semaphore : Token
            The semaphore.
        """


class SemaphoreImport(Semaphores):
    """Import of semaphores. Declared by `Capabilities.semaphore_import`."""

    @abstractmethod
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
        """Import a semaphore of a type in `Capabilities.semaphore_import`.

        Parameters
        ----------
        desc : SemaphoreDesc
            Description of the semaphore. The facade has checked the description.
        handle : OwnedHandle or None
            A duplicate of the application's fd or NT handle. The driver uses `handle` only during this call, and
            neither closes nor detaches `handle`. The driver reports the state of the duplicate, and the facade closes
            the duplicate if necessary. None: `desc` has a name, a KMT handle, an NvSci object, or the sync file -1
            (signalled).

        Returns
        -------
        Imported
            The semaphore, and the state of the duplicate. The facade releases the semaphore with `release_semaphore`.

        Raises
        ------
        ImportFailure
            The import failed. ``error`` is the error for the application, for example a `BadHandleError`
            (``refused_by_driver``). ``handle`` is the state of the duplicate. After any other exception, the facade
            treats the state as "unknown".
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
            First value of a timeline. 0 for other kinds.

        Returns
        -------
        Token
            The semaphore. A binary semaphore is unsignalled. The facade releases the semaphore with
            `release_semaphore`.
        """

    @abstractmethod
    def export_semaphore(self, semaphore: Token) -> OwnedHandle | None:
        """Export a semaphore of `create_semaphore`.

        For a sync file, the facade calls this method at most once after each appended signal. The export consumes this
        signal.

        Parameters
        ----------
        semaphore : Token
            A semaphore of `create_semaphore`.

        Returns
        -------
        OwnedHandle or None
            A new handle at each call, which programs that the process starts do not inherit (close-on-exec). The caller
            owns the handle. None: the signal of a sync file has completed already.
        """


class HostTimelines(Semaphores):
    """Portable timelines, which the device itself waits for and signals.

    Declared by HOST_TIMELINE_FD or HOST_TIMELINE_WIN32 in `Capabilities.semaphore_import` and not in
    `Capabilities.bridged`. xsem creates, exports and checks the page, and makes the reads, the signals and the waits of
    the host.
    """

    signals_wake: bool = True
    """Whether a signal of the device wakes the waiters of the page (`Timeline.signal`). False: the device stores the
    value and nothing else, as a GPU does. xsem then notes this in the page, so that waiters poll."""

    @abstractmethod
    def import_host_timeline(self, page: Timeline) -> Token:
        """Take a timeline's page into use, for the waits and signals of `SemaphoreQueue`.

        Parameters
        ----------
        page : Timeline
            The page. Its `address` is the address of its 4,096 bytes, and its value is the 64-bit number at offset 16.
            The page stays mapped until `release_semaphore` has returned. If `page.read_only` is True, the device must
            not write into it, and xsem appends no signals.

        Returns
        -------
        Token
            The semaphore. The facade releases it with `release_semaphore`.
        """


class HostFences(ABC):
    """Fences that the host reaches. With them, xsem bridges portable timelines (`Capabilities.bridged`).

    The queues of such a device accept waits and signals without semaphores: `SemaphoreQueue.append_wait` with only
    fences and memory to take over, `SemaphoreQueue.append_signal` with only fences and memory to hand over.
    """

    @abstractmethod
    def create_host_fence(self) -> Token:
        """Create an unreached fence, for the ``wait_fences`` of appends to any queue of the device.

        Returns
        -------
        Token
            The fence. The facade releases it with `DeviceDriver.release_fence`.
        """

    @abstractmethod
    def reach_host_fence(self, fence: Token) -> None:
        """Reach a fence of `create_host_fence`. Called at most once, from any thread. Never blocks.

        Parameters
        ----------
        fence : Token
            The fence.
        """


class HostSemaphore(ABC):
    """Reads, signals and waits by the host. Declared by Feature.READ_VALUE, HOST_SIGNAL or HOST_WAIT.

    One declared feature requires the class with its three methods. The facade calls only the methods of the declared
    features.
    """

    @abstractmethod
    def semaphore_value(self, semaphore: Token) -> int:
        """Return the current value of a timeline. Declared by Feature.READ_VALUE.

        Parameters
        ----------
        semaphore : Token
            An imported or created timeline.

        Returns
        -------
        int
            The value, 0 … 2**64 - 1.
        """

    @abstractmethod
    def host_signal(self, semaphore: Token, value: int | None) -> None:
        """Signal a semaphore from the host. Declared by Feature.HOST_SIGNAL.

        Parameters
        ----------
        semaphore : Token
            An imported or created semaphore.
        value : int or None
            New value of a timeline. None for a binary semaphore.
        """

    @abstractmethod
    def host_wait(self, semaphore: Token, value: int | None, timeout_ns: int) -> bool:
        """Wait for a semaphore on the host. Declared by Feature.HOST_WAIT.

        A met wait resets a binary semaphore. The facade divides long waits into calls of at most 50 ms.

        Parameters
        ----------
        semaphore : Token
            An imported or created semaphore.
        value : int or None
            Smallest value of a timeline that meets the wait. None for a binary semaphore.
        timeout_ns : int
            Longest time to block, in nanoseconds.

        Returns
        -------
        bool
            True: the wait was met, and the method returns at once. False: `timeout_ns` elapsed first.
        """


class NvSciSync(ABC):
    """Attributes of NvSciSync objects. Declared by NVSCISYNC in `Capabilities.semaphore_import`."""

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
