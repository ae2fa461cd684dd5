"""The device: what it declares, and the semaphores that it imports and exports."""

from __future__ import annotations

from xsem.errors import BadHandleError, UnsupportedError, XsemError
from xsem.spi import DeviceDriver, ImportFailure
from xsem.types import Capabilities, OwnedHandle, SemaphoreDesc, SemaphoreHandleType
from xsem_toy import eventfd
from xsem_toy.lists import Point, ToyList

__all__ = ["ToyDevice"]

BINARY = frozenset({SemaphoreHandleType.OPAQUE_FD})

# Every default is the weakest promise; each line here is one that the conformance suite holds the device to.
CAPABILITIES = Capabilities(
    semaphore_import=BINARY,
    semaphore_export=BINARY,
    wait_before_signal=BINARY,     # a wait may be appended before anybody has submitted its signal
    resets_on_wait=True,
    append_never_blocks=True,      # an append puts into a queue without a limit
    release_never_blocks=True,     # a release closes a file
    independent_lists=64,          # a thread each
)


class ToyDevice(DeviceDriver):
    """One open toy. What is not overridden raises UnsupportedError, as what is not declared must."""

    @property
    def capabilities(self) -> Capabilities:
        """The same for the life of the driver."""
        return CAPABILITIES

    def create_command_list(self) -> ToyList:
        """A new list."""
        return ToyList()

    def done(self, point: Point) -> bool:
        """Never blocks."""
        return point.wait(0)

    def wait(self, point: Point, timeout_ns: int) -> bool:
        """Better than the default, which polls."""
        return point.wait(timeout_ns)

    def release_point(self, point: Point) -> None:
        """Nothing of the vendor's hangs on a point."""

    def close(self) -> None:
        """Everything is released already: nothing is left to do."""

    def import_semaphore(self, desc: SemaphoreDesc, handle: OwnedHandle | None) -> eventfd.Semaphore:
        """Success takes the handle, failure leaves it; an API that closes it all the same would say "taken"."""
        try:
            _check(desc.type, "import")
            if handle is None:
                raise BadHandleError("the toy imports file descriptors only", reason="no_handle")
            eventfd.check(handle.fileno())
        except XsemError as error:
            raise ImportFailure(error, fate="left") from error
        return eventfd.Semaphore(handle.detach())

    def create_semaphore(self, type: SemaphoreHandleType, initial_value: int) -> eventfd.Semaphore:
        """Unsignalled."""
        _check(type, "export")
        return eventfd.Semaphore(eventfd.new())

    def export_semaphore(self, semaphore: eventfd.Semaphore) -> OwnedHandle:
        """A number of the caller's own each time."""
        return OwnedHandle(eventfd.duplicate(semaphore.fd))

    def release_semaphore(self, semaphore: eventfd.Semaphore) -> None:
        """No appended work uses it any more."""
        semaphore.close()


def _check(type: SemaphoreHandleType, what: str) -> None:
    if type not in BINARY:
        raise UnsupportedError(f"the toy does not {what} {type.value}", capability=f"semaphore.{what}.{type.value}")
