"""Replacement of ``cuda.bindings.driver``: real types, and functions that record calls and return set answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Recorder:
    """`calls` has (thread number, name, arguments), `answers[name]` a value, an exception or a function.

    As in the driver, each thread has its current context and its capture mode.
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
            if name != "cuGetProcAddress":   # asks for an address, and no address is there
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
        """The names of the called functions, in order."""
        return [name for _, name, _ in self.calls]

    @property
    def stack(self) -> list[Any]:
        """The contexts of the calling thread."""
        if not hasattr(self._thread, "stack"):
            self._thread.stack = []
        stack: list[Any] = self._thread.stack
        return stack

    @property
    def mode(self) -> Any:
        """The capture mode of the calling thread."""
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

    def _cuGetProcAddress(self, _name: bytes, _version: int, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        return (0, 0)   # no address, so the bindings make each call

    def _cuEventCreate(self, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUevent(self._new()),)

    def _cuStreamCreate(self, _flags: int) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUstream(self._new()),)

    def _cuStreamIsCapturing(self, _stream: Any) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE,)

    def _cuCtxGetDevice(self) -> tuple[Any, ...]:  # noqa: N802
        return (self._types.CUdevice(0),)
