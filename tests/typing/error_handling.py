"""Errors and timeouts."""
import logging

import xsem

log = logging.getLogger(__name__)


def connect(device: xsem.Device, fd: int) -> xsem.Semaphore | None:
    try:
        return device.import_semaphore(xsem.SemaphoreDesc.timeline_fd(fd, device_uuid=device.info.uuid))
    except xsem.WrongDeviceError as error:
        log.error("exported by %s, this is %s", error.expected, error.actual)
    except xsem.UnsupportedError as error:
        log.error("%s cannot: %s", device.info.id, error.capability)
    except xsem.BadHandleError as error:
        log.error("fd %d: %s", fd, error)
    except xsem.DriverError as error:
        if error.from_earlier_work:                      # e.g. 700 from a kernel of the caller, not from this call
            raise
        log.error("%s -> %s (%s); likely: %s", error.call, error.code, error.code_name, "; ".join(error.likely_causes))
    return None


def drain(device: xsem.Device, commands: xsem.CommandList) -> None:
    try:
        commands.synchronize(timeout_s=2.0)
    except xsem.WaitTimeoutError as error:
        for op in error.pending:
            log.error("%s %s >= %s (now %s, last signalled here %s, by %s)", op.operation, op.semaphore, op.value,
                      op.current_value, op.last_signalled_here, ", ".join(op.possible_signallers) or "unknown")
        raise
    except KeyboardInterrupt:
        log.info("pending: %s", device.pending())        # Ctrl-C works inside the wait
        raise
