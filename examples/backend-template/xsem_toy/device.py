"""The device: its capabilities, and the semaphores that it imports and exports."""

from __future__ import annotations

from xsem.errors import BadHandleError, XsemError
from xsem.spi import DeviceDriver, Imported, ImportFailure, SemaphoreExport, SemaphoreImport
from xsem.types import Capabilities, OwnedHandle, SemaphoreDesc, SemaphoreHandleType
from xsem_toy import eventfd
from xsem_toy.queues import Fence, ToyQueue

__all__ = ["ToyDevice"]

BINARY = frozenset({SemaphoreHandleType.OPAQUE_FD})

# Every default is the weakest promise. The conformance suite tests each line here.
CAPABILITIES = Capabilities(
    semaphore_import=BINARY,
    semaphore_export=BINARY,
    wait_before_signal=BINARY,     # a wait may be appended before its signal is submitted
    resets_on_wait=True,
    append_never_blocks=True,      # an append goes to a queue without a limit
    release_never_blocks=True,     # a release closes a file
    independent_lists=64,          # each has a thread
)


# The class inherits one class for each ability that the capabilities declare. The facade refuses calls that need an
# undeclared capability, so a driver checks no capability.
class ToyDevice(DeviceDriver, SemaphoreImport, SemaphoreExport):
    """One open device."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities, which are constant for the life of the driver."""
        return CAPABILITIES

    def create_queue(self) -> ToyQueue:
        """Create a queue."""
        return ToyQueue()

    def query_fence(self, fence: Fence) -> bool:
        """Return whether the fence has been reached, without blocking."""
        return fence.wait(0)

    def wait_fence(self, fence: Fence, timeout_ns: int) -> bool:
        """Wait for the fence without polling, which the default does."""
        return fence.wait(timeout_ns)

    def release_fence(self, fence: Fence) -> None:
        """Do nothing: a fence holds no vendor object."""

    def close(self) -> None:
        """Do nothing: everything has been released already."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> Imported:
        """Import an eventfd: after success, the file descriptor is "taken", and after a failure "left"."""
        try:
            if handle is None:
                raise BadHandleError("toy imports file descriptors only", reason="no_handle")
            fd = handle.fileno()
            eventfd.check(fd)
        except XsemError as error:
            # "unknown" if the vendor's API may close the file descriptor in a failed import
            raise ImportFailure(error, handle="left") from error
        return Imported(eventfd.Semaphore(fd), handle="taken")

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> eventfd.Semaphore:
        """Create an unsignalled semaphore."""
        return eventfd.Semaphore(eventfd.new())

    def export_semaphore(self, semaphore: eventfd.Semaphore) -> OwnedHandle:
        """Return a new file descriptor, owned by the caller."""
        return OwnedHandle(eventfd.duplicate(semaphore.fd))

    def release_semaphore(self, semaphore: eventfd.Semaphore) -> None:
        """Close the file descriptor, which no appended work uses any more."""
        semaphore.close()
