"""The current CUDA stream of torch and CuPy, for `CommandList.as_current`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from xsem.errors import UnsupportedError

__all__ = ["current_stream"]

_LEGACY: Final = 1   # CU_STREAM_LEGACY


@contextmanager
def current_stream(handle: int, ordinal: int) -> Iterator[None]:
    """Make a CUDA stream the current stream of each imported framework, on this thread."""
    # The caller keeps the stream during the block. `ordinal` is the number of its device in CUDA.
    frameworks = _imported()
    if not frameworks:
        raise UnsupportedError(
            "this process has imported neither torch nor CuPy with CUDA: import the framework before as_current()",
            capability="as_current", reason="no_framework")
    yield from _within(frameworks, handle, ordinal)


def _imported() -> list[_Framework]:
    """Return the frameworks that the application has imported, and that use CUDA."""
    found: list[_Framework] = []
    # An import in progress, for example in another thread, leaves an incomplete module here.
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if hasattr(torch, "cuda") and getattr(getattr(torch, "version", None), "cuda", None):
        found.append(_Torch(torch))
    runtime = getattr(getattr(cupy, "cuda", None), "runtime", None)
    if runtime is not None and not getattr(runtime, "is_hip", False):
        found.append(_CuPy(cupy))
    return found


def _within(frameworks: Sequence[_Framework], handle: int, ordinal: int) -> Iterator[None]:
    if not frameworks:
        yield
        return
    framework, *others = frameworks
    stream = framework.external(handle, ordinal)
    before = framework.present(ordinal)
    try:
        framework.use(stream, ordinal)
        yield from _within(others, handle, ordinal)
    finally:
        framework.restore(before, ordinal)


class _Framework(ABC):
    """The current streams of one framework on this thread."""

    @abstractmethod
    def external(self, handle: int, ordinal: int) -> Any:
        """Return the framework's object for a stream. The object does not own the stream."""

    @abstractmethod
    def present(self, ordinal: int) -> Any:
        """Return the state that `restore` needs."""

    @abstractmethod
    def use(self, stream: Any, ordinal: int) -> None:
        """Make the stream and its device current."""

    @abstractmethod
    def restore(self, before: Any, ordinal: int) -> None:
        """Make the earlier streams and the earlier device current."""


class _Torch(_Framework):
    def __init__(self, torch: Any) -> None:
        self._cuda = torch.cuda

    def external(self, handle: int, ordinal: int) -> Any:
        # torch reads an external handle with the lowest bit set as a stream of its own pool.
        if handle == _LEGACY:
            return self._cuda.default_stream(ordinal)
        return self._cuda.ExternalStream(handle, device=ordinal)

    def present(self, ordinal: int) -> Any:
        return self._cuda.current_stream(ordinal), self._cuda.current_stream()

    def use(self, stream: Any, ordinal: int) -> None:
        self._cuda.set_stream(stream)   # also selects the device of the stream

    def restore(self, before: Any, ordinal: int) -> None:
        for stream in before:   # the stream of the earlier device is the last one
            self._cuda.set_stream(stream)


class _CuPy(_Framework):
    def __init__(self, cupy: Any) -> None:
        self._cuda = cupy.cuda

    def external(self, handle: int, ordinal: int) -> Any:
        # Not Stream.from_external: the collection of its result destroys the stream (CuPy 14). The constructor of
        # ExternalStream warns that the class is deprecated, so the constructor of its base class runs.
        kind = self._cuda.ExternalStream
        stream = kind.__new__(kind)
        kind.__base__.__init__(stream, handle, ordinal)
        return stream

    def present(self, ordinal: int) -> Any:
        return self._cuda.runtime.getDevice(), self._cuda.get_current_stream(ordinal)

    def use(self, stream: Any, ordinal: int) -> None:
        self._cuda.runtime.setDevice(ordinal)
        stream.use()

    def restore(self, before: Any, ordinal: int) -> None:
        device, stream = before
        self._cuda.runtime.setDevice(ordinal)   # CuPy refuses a stream of another device
        stream.use()
        self._cuda.runtime.setDevice(device)
