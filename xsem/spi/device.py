"""The driver of one open device."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from xsem.errors import UnsupportedError
from xsem.spi.queue import QueueDriver
from xsem.spi.tokens import Token, unsupported
from xsem.types import (
    Capabilities,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    OwnedHandle,
    SemaphoreDesc,
    SemaphoreHandleType,
)

__all__ = ["DeviceDriver"]


class DeviceDriver(ABC):
    """One open device.

    Each method that is not abstract has a default. Most defaults raise `UnsupportedError`.

    A driver must override what its `capabilities` declare. The facade checks this when the device is opened. A driver
    must refuse what its `capabilities` do not declare with `UnsupportedError`, also in a direct call. The conformance
    suite checks this.

    The facade owns every token that a driver returns. It releases each token once, with the release function that the
    method names.

    Examples
    --------
    >>> class AcmeDevice(DeviceDriver):
    ...     capabilities = Capabilities()   # declares nothing
    ...     def create_queue(self):
    ...         return AcmeList()
    ...     def query_fence(self, fence):
    ...         return True
    ...     def release_fence(self, fence): ...
    ...     def close(self): ...
    >>> AcmeDevice().wait_fence(1, timeout_ns=0)
    True
    """

    timeout_causes: Sequence[str] = ()
    """Likely causes of a timeout that are specific to this driver, one sentence each."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What the device declares. The value is constant for the life of the driver."""

    @abstractmethod
    def create_queue(self) -> QueueDriver:
        """Create an in-order list of the driver's own.

        Returns
        -------
        QueueDriver
            The facade calls its `QueueDriver.close` once.
        """

    @abstractmethod
    def query_fence(self, fence: Token) -> bool:
        """Query a fence. This method never blocks.

        Parameters
        ----------
        fence : Token
            A fence of an append, or of `borrow_event`.

        Returns
        -------
        bool
            Whether the fence has been reached.

        Raises
        ------
        DriverError
            The fence can never be reached, because the list's earlier work failed or the device is lost.
        """

    @abstractmethod
    def release_fence(self, fence: Token) -> None:
        """Release a fence. Called once, when no append, wait or query uses the fence any more."""

    @abstractmethod
    def close(self) -> None:
        """Close the device. Called once, after everything that was opened through it has been released."""

    # ---- import. `handle` is a duplicate for this call, or None if the descriptor has no fd and no NT handle.
    # Success: the driver calls handle.detach() if it took the handle. Otherwise the facade closes the handle.
    # Failure: the driver raises ImportFailure.
    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Token:
        """Import a semaphore of a type in `Capabilities.semaphore_import`.

        Parameters
        ----------
        desc : SemaphoreDesc
            Description of the semaphore, checked by the facade.
        handle : OwnedHandle or None
            A duplicate of the application's fd or NT handle, for this call only. None if `desc` has no fd and no NT
            handle. On success, call ``handle.detach()`` if the driver took ownership of the duplicate. Otherwise leave
            `handle` open, and the facade closes it. On failure, `ImportFailure.fate` says what became of it.

        Returns
        -------
        Token
            The semaphore. The facade releases it with `release_semaphore`.

        Raises
        ------
        ImportFailure
            The import failed. After any other exception the facade treats the state of `handle` as unknown.
        UnsupportedError
            The device does not declare semaphore import (default).
        """
        unsupported(self, "import_semaphore")

    def release_semaphore(self, semaphore: Token) -> None:
        """Release an imported or created semaphore. Called once, when no appended work uses it any more."""
        unsupported(self, "release_semaphore")

    def import_memory(self, desc: MemoryDesc, handle: OwnedHandle | None) -> Token:
        """Import memory of a type in `Capabilities.memory_import`.

        Parameters
        ----------
        desc : MemoryDesc
            Description of the memory, checked by the facade.
        handle : OwnedHandle or None
            As in `import_semaphore`.

        Returns
        -------
        Token
            The memory. The facade releases it with `release_memory`.

        Raises
        ------
        ImportFailure
            The import failed. After any other exception the facade treats the state of `handle` as unknown.
        UnsupportedError
            The device does not declare memory import (default).
        """
        unsupported(self, "import_memory")

    def map_buffer(self, memory: Token, offset: int, size: int) -> tuple[Token, int]:
        """Map the bytes from `offset` to ``offset + size`` of the memory.

        Parameters
        ----------
        memory : Token
            Imported or created memory.
        offset, size : int
            Range in bytes. The facade has checked that it lies in the allocation.

        Returns
        -------
        Token
            The mapping. The facade releases it with `unmap_buffer`.
        int
            Device address of the first byte.
        """
        unsupported(self, "map_buffer")

    def unmap_buffer(self, buffer: Token) -> None:
        """Release a mapping of `map_buffer`. Called once. This method may block."""
        unsupported(self, "unmap_buffer")

    def release_memory(self, memory: Token) -> None:
        """Release imported or created memory. Called once, after all its mappings. This method may block."""
        unsupported(self, "release_memory")

    # ---- images: Feature.MIPMAPPED_ARRAY, or Feature.IMAGE for images of one level at the start of the memory
    def map_mipmapped_array(self, memory: Token, desc: MipmapDesc) -> Token:
        """Map an image onto the memory.

        Parameters
        ----------
        memory : Token
            Imported or created memory.
        desc : MipmapDesc
            Layout of the image, checked by the facade.

        Returns
        -------
        Token
            The image. The facade releases it with `release_array`.
        """
        unsupported(self, "map_mipmapped_array")

    def mipmap_level(self, array: Token, level: int) -> Token:
        """Return one level of an image, for `QueueDriver.append_level_copy`.

        Parameters
        ----------
        array : Token
            An image of `map_mipmapped_array`.
        level : int
            Number of the level, from 0.

        Returns
        -------
        Token
            The level. It lives as long as the image and has no release function.
        """
        unsupported(self, "mipmap_level")

    def release_array(self, array: Token) -> None:
        """Release an image of `map_mipmapped_array`. Called once. This method may block."""
        unsupported(self, "release_array")

    # ---- export: Capabilities.semaphore_export and Capabilities.memory_export
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

        Raises
        ------
        UnsupportedError
            The device does not declare `type` for export.
        """
        unsupported(self, "create_semaphore")

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
        unsupported(self, "export_semaphore")

    def create_memory(self, type: MemoryHandleType, size: int, dedicated: bool) -> tuple[Token, int]:
        """Create exportable memory of at least `size` bytes.

        Parameters
        ----------
        type : MemoryHandleType
            A type in `Capabilities.memory_export`.
        size : int
            Smallest size in bytes.
        dedicated : bool
            Whether to make a dedicated allocation.

        Returns
        -------
        Token
            The memory. The facade releases it with `release_memory`.
        int
            Allocated size in bytes.

        Raises
        ------
        UnsupportedError
            The device does not declare `type` for export.
        """
        unsupported(self, "create_memory")

    def export_memory(self, memory: Token) -> OwnedHandle:
        """Export memory of `create_memory`.

        Parameters
        ----------
        memory : Token
            Memory of `create_memory`.

        Returns
        -------
        OwnedHandle
            A new handle at each call, owned by the caller.
        """
        unsupported(self, "export_memory")

    # ---- semaphores on the host: Feature.READ_VALUE, HOST_SIGNAL, HOST_WAIT
    def semaphore_value(self, semaphore: Token) -> int:
        """Return the current value of a timeline."""
        unsupported(self, "semaphore_value")

    def host_signal(self, semaphore: Token, value: int | None) -> None:
        """Signal a semaphore from the host.

        Parameters
        ----------
        semaphore : Token
            An imported or created semaphore.
        value : int or None
            New value of a timeline; None for a binary semaphore.
        """
        unsupported(self, "host_signal")

    def host_wait(self, semaphore: Token, value: int | None, timeout_ns: int) -> bool:
        """Wait for a semaphore on the host. A wait that succeeds resets a binary semaphore.

        The facade divides long waits into calls of at most 50 ms.

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
        unsupported(self, "host_wait")

    # ---- other
    def nvscisync_attributes(self, attributes: int, signal: bool, wait: bool) -> None:
        """Write the device's requirements for an NvSciSync object into an attribute list.

        Parameters
        ----------
        attributes : int
            The NvSciSyncAttrList. The application keeps ownership.
        signal, wait : bool
            Intended use of the NvSciSync object.
        """
        unsupported(self, "nvscisync_attributes")

    def host_buffer(self, size: int) -> tuple[Token, int]:
        """Allocate page-locked host memory for appended copies.

        Parameters
        ----------
        size : int
            Size in bytes.

        Returns
        -------
        Token
            The host buffer. The facade releases it with `release_host_buffer`.
        int
            Address of the first byte.
        """
        unsupported(self, "host_buffer")

    def release_host_buffer(self, buffer: Token) -> None:
        """Release a host buffer of `host_buffer`. Called once. This method may block."""
        unsupported(self, "release_host_buffer")

    def borrow_event(self, native: object) -> Token:
        """Open a borrowed event as a fence. Declared by Feature.NATIVE_EVENTS.

        Parameters
        ----------
        native : object
            An event of another library. Its owner has appended it already, and keeps ownership.

        Returns
        -------
        Token
            A fence. The facade releases it with `release_fence`.

        Raises
        ------
        TypeError
            `native` is an object of another framework. The facade raises BadArgumentError (``not_an_event``) for it.
        """
        unsupported(self, "borrow_event")

    def borrow_queue(self, stream: object, in_order: bool) -> QueueDriver:
        """Open the application's own queue as a borrowed list.

        Parameters
        ----------
        stream : object
            The queue, as an object or a native handle. The application keeps ownership. The driver keeps a reference to
            `stream` as long as it uses the queue.
        in_order : bool
            False: the queue may execute its commands in another order than they were appended.

        Returns
        -------
        QueueDriver
            A driver for the queue. Its `QueueDriver.close` does not close the queue.

        Raises
        ------
        WrongDeviceError
            The stream belongs to another device or context.
        BadArgumentError
            ``out_of_order``: the queue is out of order. ``null_stream``: `stream` is the bare int 0.
        TypeError
            `stream` is an object of another framework. The facade raises BadArgumentError (``not_a_stream``) for it.
        """
        unsupported(self, "borrow_queue")

    # ---- optional, with working defaults
    def stream_identity(self, stream: object) -> int | None:
        """Return the identity of the application's own queue, without a driver call.

        The facade calls this method before `borrow_queue`. For a known identity, the facade uses the existing list
        and does not call `borrow_queue`.

        Parameters
        ----------
        stream : object
            As for `borrow_queue`.

        Returns
        -------
        int or None
            The `QueueDriver.identity` of a list on the queue. None, the default: the identity is unknown before
            `borrow_queue`.

        Raises
        ------
        WrongDeviceError, BadArgumentError, TypeError
            As for `borrow_queue`, if the object itself shows the error.
        """
        return None

    def wait_fence(self, fence: Token, timeout_ns: int) -> bool:
        """Block until a fence is reached. The default polls `done`.

        The facade divides long waits into calls of at most 50 ms.

        Parameters
        ----------
        fence : Token
            A fence of an append, or of `borrow_event`.
        timeout_ns : int
            Longest time to block, in nanoseconds.

        Returns
        -------
        bool
            True if the fence has been reached; False if `timeout_ns` elapsed first.

        Raises
        ------
        DriverError
            As `done`.
        """
        deadline = time.monotonic_ns() + timeout_ns
        pause = 20e-6
        while not self.query_fence(fence):
            left = deadline - time.monotonic_ns()
            if left <= 0:
                return False
            time.sleep(min(pause, left / 1e9))
            pause = min(pause * 1.5, 1e-3)
        return True

    def quiet(self) -> AbstractContextManager[None]:
        """Return the context for calls that xsem makes on its own account, such as polls and releases.

        The facade enters it around each such call. On CUDA it sets the relaxed stream-capture mode. Default: no effect.
        """
        return nullcontext()

    def native_handle(self, token: Token | None) -> int:
        """Return the vendor's handle of an object.

        Parameters
        ----------
        token : Token or None
            Token of the object; None for the device's own handle (context, queue).

        Returns
        -------
        int
            The handle. The driver keeps ownership. Default: the token itself if it is an int.

        Raises
        ------
        UnsupportedError
            The object has no native handle.
        """
        if isinstance(token, int):
            return token
        raise UnsupportedError("this object has no native handle", capability="native_handle")

    def dlpack_device(self) -> tuple[int, int]:
        """Return the DLPack device type and id of mapped buffers.

        With device type 1 (CPU), the facade lets the host access mapped buffers directly.

        Returns
        -------
        tuple of (int, int)
            Default: (1, 0), the CPU.
        """
        return (1, 0)
