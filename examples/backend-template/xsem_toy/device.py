"""The device: its capabilities, and the semaphores that it imports and exports."""

from __future__ import annotations

from xsem.errors import BadHandleError, UnsupportedError, XsemError
from xsem.spi import DeviceDriver, ImportFailure
from xsem.types import Capabilities, OwnedHandle, SemaphoreDesc, SemaphoreHandleType
from xsem_toy import eventfd
from xsem_toy.lists import Fence, ToyList

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


class ToyDevice(DeviceDriver):
    """One open device. Methods that are not overridden raise UnsupportedError, as the interface requires."""

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities. They are constant for the life of the driver."""
        return CAPABILITIES

    def create_queue(self) -> ToyList:
        """Create a list."""
        return ToyList()

    def query_fence(self, fence: Fence) -> bool:
        """Return whether the fence has been reached. This method never blocks."""
        return fence.wait(0)

    def wait_fence(self, fence: Fence, timeout_ns: int) -> bool:
        """Wait for the fence without polling. The default polls."""
        return fence.wait(timeout_ns)

    def release_fence(self, fence: Fence) -> None:
        """Do nothing: a fence holds no vendor object."""

    def close(self) -> None:
        """Do nothing: everything has been released already."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> eventfd.Semaphore:
        """Import an eventfd. Success takes `handle`, and failure leaves it open.

        An API that closes the handle on failure reports "taken".
        """
        try:
            _check(desc.type, "import")
            if handle is None:
                raise BadHandleError("the toy imports file descriptors only", reason="no_handle")
            eventfd.check(handle.fileno())
        except XsemError as error:
            raise ImportFailure(error, fate="left") from error
        return eventfd.Semaphore(handle.detach())

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> eventfd.Semaphore:
        """Create an unsignalled semaphore."""
        _check(type, "export")
        return eventfd.Semaphore(eventfd.new())

    def export_semaphore(self, semaphore: eventfd.Semaphore) -> OwnedHandle:
        """Return a new file descriptor, owned by the caller."""
        return OwnedHandle(eventfd.duplicate(semaphore.fd))

    def release_semaphore(self, semaphore: eventfd.Semaphore) -> None:
        """Close the file descriptor. No appended work uses it any more."""
        semaphore.close()


def _check(type: SemaphoreHandleType, what: str) -> None:
    if type not in BINARY:
        raise UnsupportedError(f"the toy does not {what} {type.value}", capability=f"semaphore.{what}.{type.value}")
