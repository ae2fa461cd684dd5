"""The current streams of torch and CuPy, as far as `CommandList.as_current` uses them, without a GPU.

Each thread has a current device, which both frameworks share as they share the CUDA runtime's, and one current stream
for each device. As in the real frameworks, torch's `set_stream` selects the device of the stream, and CuPy's
`Stream.use` refuses a stream of another device.
"""

from __future__ import annotations

import threading
import types
from typing import Any

__all__ = ["Frameworks"]


class Frameworks(threading.local):
    """The state of one thread. `torch` and `cupy` are modules for `sys.modules`."""

    def __init__(self) -> None:
        self.device = 0

    def torch(self, *, cuda: str | None = "13.0") -> types.ModuleType:
        """Return a module with torch's names. A build for ROCm or for the CPU has no CUDA version."""
        state = self
        current = _Streams(lambda ordinal: _Stream(0, ordinal))

        def external(handle: int, *, device: int) -> _Stream:
            # torch/csrc/cuda/Stream.cpp: the lowest bit of a stream id distinguishes the streams of torch's own pool.
            assert handle > 1
            assert handle % 2 == 0
            return _Stream(handle, device)

        def current_stream(device: int | None = None) -> _Stream:
            found: _Stream = current[state.device if device is None else device]
            return found

        def set_stream(stream: _Stream) -> None:
            state.device = stream.ordinal
            current[stream.ordinal] = stream

        module: Any = types.ModuleType("torch")
        module.version = types.SimpleNamespace(cuda=cuda)
        module.cuda = types.SimpleNamespace(
            ExternalStream=external, default_stream=lambda ordinal: _Stream(0, ordinal), current_stream=current_stream,
            set_stream=set_stream)
        return module  # type: ignore[no-any-return]

    def cupy(self, *, is_hip: bool = False) -> types.ModuleType:
        """Return a module with CuPy's names."""
        state = self
        current = _Streams(lambda _: BaseStream(0, -1))

        class BaseStream:
            def __init__(self, ptr: int, device_id: int) -> None:
                self.ptr = ptr
                self.device_id = device_id

            def use(self) -> None:
                if self.device_id not in (-1, state.device):
                    raise RuntimeError(f"stream of device {self.device_id}, current device {state.device}")
                current[state.device] = self

        class ExternalStream(BaseStream):
            def __init__(self, ptr: int, device_id: int = -1) -> None:
                raise DeprecationWarning("ExternalStream is deprecated")

        def select(ordinal: int) -> None:
            state.device = ordinal

        module: Any = types.ModuleType("cupy")
        module.cuda = types.SimpleNamespace(
            ExternalStream=ExternalStream,
            get_current_stream=lambda device_id=-1: current[state.device if device_id == -1 else device_id],
            runtime=types.SimpleNamespace(is_hip=is_hip, getDevice=lambda: state.device, setDevice=select))
        return module  # type: ignore[no-any-return]


class _Stream:
    def __init__(self, handle: int, ordinal: int) -> None:
        self.ptr = handle
        self.ordinal = ordinal


class _Streams(threading.local):
    """The current stream of each device, on this thread."""

    def __init__(self, default: Any) -> None:
        self._default = default
        self._streams: dict[int, Any] = {}

    def __getitem__(self, ordinal: int) -> Any:
        return self._streams.setdefault(ordinal, self._default(ordinal))

    def __setitem__(self, ordinal: int, stream: Any) -> None:
        self._streams[ordinal] = stream
