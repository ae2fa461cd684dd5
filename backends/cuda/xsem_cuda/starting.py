"""`begin`, which makes the driver calls that start CUDA, list the devices and open one."""

# Section 6.20 does not list the codes of these calls, so `xsem_cuda.results` takes most of them for failures of earlier
# work. Here they are about the machine.

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from xsem.errors import BackendUnavailableError, DeviceLostError, XsemError
from xsem_cuda import codes
from xsem_cuda.results import call

__all__ = ["begin", "denied_nodes", "remedy"]

_WINDOWS: Final = sys.platform == "win32"
_CONTAINERS: Final = "" if _WINDOWS else "; give a container the library of its host"
_HARDWARE: Final = ("the GPU reports a hardware error", "nvidia-smi -q shows it; reset the GPU, or restart the machine")
# By code: what is wrong, and what to do.
_FAILURES: Final[Mapping[int, tuple[str, str]]] = {
    # cuInit returns NOT_INITIALIZED only in a forked child of a process that had started CUDA (measured).
    codes.NOT_INITIALIZED: ("CUDA was started before this process was forked, and a forked child cannot use CUDA",
                            'start processes with the "spawn" method; xsem.devices() and xsem.backends() start CUDA'),
    34: ("the CUDA library is the toolkit's stub, not the driver",
         "install the NVIDIA driver, and take the folder of the stubs out of the search path of libraries"),
    codes.DEVICE_UNAVAILABLE: ("another process has the device alone (exclusive mode), or its mode permits no process",
                               "end the other process, or set the mode: nvidia-smi -c DEFAULT"),
    codes.NO_DEVICE: ("the CUDA driver finds no device",
                      f"check CUDA_VISIBLE_DEVICES{'' if _WINDOWS else ', and whether the container has a GPU'}"),
    codes.INVALID_DEVICE: ("the CUDA driver does not have this device",
                           "check CUDA_VISIBLE_DEVICES; a GPU or a MIG instance may have been removed"),
    102: ("the virtual GPU has no licence", "nvidia-smi -q shows the state of the licence"),
    214: _HARDWARE, 220: _HARDWARE, 226: _HARDWARE,   # ECC, NVLink, contained
    codes.OPERATING_SYSTEM: ("a call of the CUDA driver to the operating system failed",
                             "check the number of open files of the process, and the log of the kernel"),
    codes.NOT_SUPPORTED: ("the device does not support CUDA in its present mode", "nvidia-smi -q shows the modes"),
    802: ("the GPUs of this machine are not ready",
          "start nvidia-fabricmanager, and wait until nvidia-smi -q shows the fabric as completed"),
    803: ("the kernel module and the CUDA library have different releases",
          f"restart the machine after an update of the driver{_CONTAINERS}"),
    804: ("the CUDA library is a compatibility package that does not support this GPU",
          "take its folder (cuda-compat) out of the search path of libraries, or update the driver"),
    805: ("the control daemon of MPS cannot be reached",
          "start nvidia-cuda-mps-control, or unset CUDA_MPS_PIPE_DIRECTORY"),
    806: ("a call to the MPS server failed", "see the log of nvidia-cuda-mps-control"),
    807: ("the MPS server is not ready", "try again, and see the log of nvidia-cuda-mps-control"),
    808: ("the MPS server has its largest number of clients", "end other clients"),
    809: ("the MPS server has no hardware queues left",
          "end other clients, or set a lower CUDA_DEVICE_MAX_CONNECTIONS"),
    810: ("the MPS server has ended this client", "start a new process"),
}
_REPAIR: Final = "reinstall" if _WINDOWS else "load its kernel modules (nvidia-uvm) or reinstall"
_OTHER: Final = ("the CUDA driver does not start",
                 f"run nvidia-smi; if it fails, {_REPAIR} the NVIDIA driver and restart the machine")
# Codes that the driver returns where it may not open its device nodes.
_MAY_BE_DENIED: Final = frozenset({codes.NO_DEVICE, codes.OPERATING_SYSTEM, codes.UNKNOWN})


def begin(function: Callable[..., Any], *args: Any) -> Any:
    """Make the call as `call`, with the errors of the start."""
    try:
        return call(function, *args)
    except XsemError as error:
        raised = _at_start(error)
        if raised is error:
            raise
        raise raised from error


def remedy(error: Exception) -> str:
    """Return the instruction for an error of `begin`, for ``xsem doctor``."""
    if isinstance(error, XsemError):
        if error.reason == "no_permission":
            return "add the user to the group that owns the device nodes"
        return _FAILURES.get(error.code or 0, _OTHER)[1]
    return _OTHER[1]


def _at_start(error: XsemError) -> XsemError:
    if error.reason == "fd_limit":
        return error
    fields: dict[str, Any] = {"call": error.call, "code": error.code, "code_name": error.code_name}
    denied = denied_nodes() if error.code in _MAY_BE_DENIED else []
    if denied:
        return BackendUnavailableError(
            f"no permission on {', '.join(denied)}: add the user to the group that owns these nodes",
            reason="no_permission", **fields,
        )
    found = _FAILURES.get(error.code or 0)
    if found is None:
        if error.reason not in ("earlier_work_failed", "unknown_code", "driver_error"):
            return error
        found = _OTHER
    text = ": ".join(found)
    if found is _HARDWARE:
        return DeviceLostError(text, reason="device_lost", **fields)
    reason = "driver_failed"
    if error.code == codes.NOT_INITIALIZED:
        reason = "not_initialized"
    elif error.code == codes.DEVICE_UNAVAILABLE:
        reason = "device_unavailable"
    elif error.code in (codes.NO_DEVICE, codes.INVALID_DEVICE):
        reason = "no_device"
    return BackendUnavailableError(text, reason=reason, **fields)


def denied_nodes() -> list[str]:
    """Return the device nodes of the driver that this user cannot open; always empty on Windows."""
    return [node for node in sorted(glob.glob("/dev/nvidia[0-9]*") + glob.glob("/dev/nvidia-uvm")
                                    + glob.glob("/dev/nvidiactl"))
            if not os.access(node, os.R_OK | os.W_OK)]
