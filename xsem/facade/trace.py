"""Traces: what all lists and the host do, and when, in a file for viewers."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from xsem.runtime.forks import generation
from xsem.runtime.trace_file import TraceFile, process_name

__all__ = ["Trace", "trace", "trace_from_environment"]

_log = logging.getLogger("xsem")
_VARIABLE: Final = "XSEM_TRACE"
_DEVICE_TIMES: Final = "XSEM_TRACE_DEVICE_TIMES"


class Trace:
    """A trace that is recorded, until `close` or the end of a ``with`` block. Call `trace` to begin one.

    Parameters
    ----------
    path : str or path
        The file, which is replaced.
    device_times : bool
        As for `trace`.
    """

    def __init__(self, path: str | os.PathLike[str], *, device_times: bool = False) -> None:
        self._file = TraceFile(path, device_times=device_times)

    def close(self) -> None:
        """Write the rest, and close the file. A second call has no effect."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def trace(path: str | os.PathLike[str], *, device_times: bool = False) -> Trace:
    """Record what xsem does in this process: appends, their ends on the device, waits and signals of the host.

    The file has the JSON array format of Chrome's traces, which Perfetto opens, too. ``xsem trace show`` merges the
    files of several processes, and tells which signal ended which wait. A semaphore that two processes share is known
    as one if it is a portable timeline, or has the same `label` in both. If the file cannot be written further, one
    warning is logged, and the program goes on.

    The end of an operation is the time at which xsem saw it. A thread of xsem looks each millisecond. In a context of
    OpenGL that the application lends, it sees an end only after the application's next call of xsem. With
    `device_times`, CUDA and ``host`` tell the time themselves.

    The environment variable ``XSEM_TRACE=folder`` records each process into a file of its own in this folder, from its
    first `open_device` on, and with ``XSEM_TRACE_DEVICE_TIMES=1`` with the times of the devices.

    Parameters
    ----------
    path : str or path
        The file, which is replaced.
    device_times : bool
        Whether each append also gives the device a marker, which tells when the operation before it was done, to about
        25 µs on CUDA. Then an append takes longer, and half of `Capabilities.max_pending` may be in flight with times.

    Returns
    -------
    Trace
        For ``with``, or until its `close`. The exit of the interpreter closes it, too. After a kill, the file can be
        read up to its last whole line.

    Raises
    ------
    BadArgumentError
        ``trace_not_writable``: the file cannot be created, or the thread that writes it.
    BusyError
        ``tracing``: the process records a trace already.

    Examples
    --------
    >>> import tempfile
    >>> import xsem
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with xsem.trace(f"{folder}/run.json"), xsem.open_device("host") as device:
    ...         device.create_timeline(label="frames").host_signal(1)
    """
    return Trace(path, device_times=device_times)


_looked: Final[dict[int, object]] = {}   # in which generation of the process


def trace_from_environment() -> None:
    """Begin the trace that the environment asks for, once in a process. A folder that is not writable is a warning."""
    folder, mine = os.environ.get(_VARIABLE), object()
    if not folder or _looked.setdefault(generation(), mine) is not mine:
        return
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Trace(Path(folder) / f"{process_name()}-{os.getpid()}.json",
              device_times=os.environ.get(_DEVICE_TIMES, "") not in ("", "0"))
    except Exception as error:   # whatever it is, the program does not need a trace
        _log.warning("%s=%s: no trace is recorded: %s", _VARIABLE, folder, error)
