"""Stands in for ``cuda.bindings.driver``: the types are the real ones, the functions note calls and answer as told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Recorder:
    """`calls` holds (thread's number, name, arguments); `answers[name]` a value, an exception or a function.

    The current context and the capture mode are each thread's own, as the driver's.
    """

    def __init__(self, types: Any) -> None:
        self._types = types
        self._next = 0x1000
        self._thread = threading.local()
        self.calls: list[tuple[int, str, tuple[Any, ...]]] = []
        self.codes: dict[str, int] = {}
        self.answers: dict[str, Callable[..., tuple[Any, ...]]] = {}

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu") or not callable(getattr(self._types, name)):
            return getattr(self._types, name)

        def function(*args: Any) -> tuple[Any, ...]:
            self.calls.append((threading.get_ident(), name, args))
            code = self._types.CUresult(self.codes.get(name, 0))
            if code:
                return (code, None)
            if name in self.answers:
                return (code, *self.answers[name](*args))
            return (code, *getattr(self, "_" + name, lambda *_: ())(*args))

        function.__name__ = name
        return function

    @property
    def names(self) -> list[str]:
        """The functions called, in order."""
        return [name for _, name, _ in self.calls]

    @property
    def stack(self) -> list[Any]:
        """The calling thread's contexts."""
        if not hasattr(self._thread, "stack"):
            self._thread.stack = []
        stack: list[Any] = self._thread.stack
        return stack

    @property
    def mode(self) -> Any:
        """The calling thread's capture mode."""
        return getattr(self._thread, "mode", self._types.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)

    def _new(self) -> int:
        self._next += 0x10
        return self._next

    def _cuCtxGetCurrent(self) -> tuple[Any, ...]:  # noqa: N802
        return (self.stack[-1] if self.stack else self._types.CUcontext(0),)

    def _cuCtxPushCurrent(self, context: Any) -> tuple[Any, ...]:  # noqa: N802
        self.stack.append(context)
        return ()

    def _cuCtxPopCurrent(self) -> tuple[Any, ...]:  # noqa: N802
        return (self.stack.pop(),)

    def _cuThreadExchangeStreamCaptureMode(self, mode: Any) -> tuple[Any, ...]:  # noqa: N802
        before, self._thread.mode = self.mode, mode
        return (before,)

    def _cuEventCreate(self, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUevent(self._new()),)

    def _cuStreamCreate(self, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUstream(self._new()),)

    def _cuStreamIsCapturing(self, _stream: Any) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE,)

    def _cuCtxGetDevice(self) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUdevice(0),)
