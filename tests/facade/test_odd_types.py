"""A public call that gets a value of another type raises an error of xsem, never a raw error of Python."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.fake_backend import INFO
from support.odd_values import NUMBERS, WAITS, parameters, raised
from support.real_bytes import ImageGpu
from support.system_types import BINARY, MEMORY, binary, timeline

import xsem
from xsem.facade.device import Device
from xsem.types import DrmPlane, Feature, MipmapDesc

Calls = dict[str, tuple[Callable[..., Any], dict[str, Any]]]
DESCS = {"fd": 0, "handle": 0x40, "address": 8, "device_uuid": None, "allocation_size": 5}
IMAGE: dict[str, Any] = {"extent": (8, 4, 0), "format": "unorm8", "channels": 4}


class Holder:
    """An array of another library."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class DLPack:
    def __init__(self, device: Any, capsule: Any) -> None:
        self._device, self._capsule = device, capsule

    def __dlpack_device__(self) -> Any:
        return self._device

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule


def shared(device: Device, interface: dict[str, Any], key: str, value: Any) -> xsem.SharedArray:
    return device.share(Holder(__cuda_array_interface__={**interface, key: value}))


def data_calls() -> Calls:
    """Return the calls that need no device."""
    found: Calls = {
        "open_device": (xsem.open_device, {"device": "host"}), "devices": (xsem.devices, {}),
        "SemaphoreDesc": (xsem.SemaphoreDesc, {"type": "OPAQUE_FD", "handle": 0}),
        "MemoryDesc": (xsem.MemoryDesc, {"type": "OPAQUE_FD", "handle": 0, "allocation_size": 5}),
        "SignalParams": (xsem.SignalParams, {}), "WaitParams": (xsem.WaitParams, {}), "MipmapDesc": (MipmapDesc, IMAGE),
        "MipmapDesc.plane": (MipmapDesc(extent=(4, 4, 0), format="nv12", channels=3).plane, {"index": 0, "offset": 0}),
        "DrmLayout": (xsem.DrmLayout, {"modifier": 0, "planes": (DrmPlane(offset=0, pitch=4),)}),
        "DrmPlane": (DrmPlane, {"offset": 0, "pitch": 4}),
        "OwnedHandle": (xsem.OwnedHandle, {}),
        "Peer": (xsem.Peer, {"pid": 1, "started": None}), "Peer.of": (xsem.Peer.of, {}),
        "Peer.of_socket": (xsem.Peer.of_socket, {}), "Peer.of_credentials": (xsem.Peer.of_credentials, {}),
        "Peer.alive": (lambda pid=1, started=None: xsem.Peer(pid, started).alive, {}),
    }
    for kind in (xsem.SemaphoreDesc, xsem.MemoryDesc):
        for name in vars(kind):
            if isinstance(vars(kind)[name], classmethod):
                found[f"{kind.__name__}.{name}"] = (getattr(kind, name), DESCS)
    return found


def ring_calls(device: Device) -> Calls:
    """Return the calls of a ring of frames and its consumer."""
    of_ring = {"device": device, "shape": (4,), "dtype": "uint8"}
    ring = xsem.FrameRing.create(**of_ring)   # type: ignore[arg-type]
    message = ring.export()
    reader = xsem.FrameRing.open(device, message)

    def write(stream: Any = None, payload: Any = b"", timeout_s: Any = 0) -> None:
        with ring.write(stream, payload=payload, timeout_s=timeout_s) as frame:
            frame.payload = payload
        read(timeout_s=1)

    def read(stream: Any = None, timeout_s: Any = 0) -> None:
        with reader.read(stream, timeout_s=timeout_s):
            pass

    @functools.wraps(xsem.FrameRing.create)
    def create(**given: Any) -> None:
        xsem.FrameRing.create(**given).close()

    @functools.wraps(xsem.FrameRing.open)
    def join(**given: Any) -> None:
        xsem.FrameRing.open(**given).close()

    return {
        "FrameRing.create": (create, of_ring), "FrameRing.export": (ring.export, {}),
        "FrameRing.open": (join, {"device": device, "message": message}),
        "FrameRing.write": (write, {}), "FrameReader.read": (read, {}),
        "FrameRing.close": (ring.close, {}), "FrameReader.close": (reader.close, {}),
    }


def device_calls(device: Device) -> Calls:
    """Return the calls of the objects of a device. None of them waits, except with an odd limit."""
    sem, bare, memory = timeline(device), binary(device), device.create_memory(MEMORY, 1 << 16)
    buffer, commands = memory.map_buffer(shape=(4, 8, 4)), device.create_command_list()
    staging, bound = memory.map_buffer(4096, shape=(128,)), device.create_event()
    commands.append_barrier(signal_event=bound)
    usual = {"semaphores": sem, "params": 0}
    return {
        **(ring_calls(device) if RINGS else {}),
        "Frame.__dlpack__": (buffer.__dlpack__, {}),
        "Device.create_semaphore": (device.create_semaphore, {"type": BINARY}),
        "Device.create_timeline": (device.create_timeline, {}), "Device.create_binary": (device.create_binary, {}),
        "Device.create_memory": (device.create_memory, {"type": MEMORY, "size": 4096}),
        "Device.import_semaphore": (device.import_semaphore, {"desc": None}),
        "Device.import_memory": (device.import_memory, {}),
        "Device.command_list": (device.command_list, {"stream": 5}), "Device.event": (device.event, {}),
        "Device.host_buffer": (device.host_buffer, {}), "Device.share": (device.share, {"array": None}),
        "Device.watch": (device.watch, {"after_s": 1}),
        "negotiate": (xsem.negotiate, {"exporter": device, "importer": device}),
        "Device.nvscisync_attributes": (device.nvscisync_attributes, {"attributes": 5}),
        "Semaphore.export": (sem.export, {}), "Semaphore.host_signal": (sem.host_signal, {}),
        "Semaphore.host_wait": (sem.host_wait, {"timeout_s": 0}), "Semaphore.reached": (sem.reached, {"value": 0}),
        "Semaphore.wait": (sem.wait, {"value": 0, "stream": 5}), "Semaphore.signal": (sem.signal, {"stream": 5}),
        "binary host_signal": (bare.host_signal, {}), "binary host_wait": (bare.host_wait, {"timeout_s": 0}),
        "Memory.export": (memory.export, {}), "Memory.map_buffer": (memory.map_buffer, {"overlap": True}),
        "Memory.map_mipmapped_array": (memory.map_mipmapped_array, {"desc": MipmapDesc(**IMAGE)}),
        "Buffer.view": (buffer.view, {"shape": (4,), "dtype": "uint8"}),
        "Buffer.copy_to_host": (buffer.copy_to_host, {}),
        "Buffer.copy_from_host": (buffer.copy_from_host, {"array": np.zeros((4, 8, 4), np.uint8)}),
        "Buffer.__dlpack__": (buffer.__dlpack__, {}),
        "CommandList.append_wait": (commands.append_wait, usual),
        "CommandList.append_signal": (commands.append_signal, {"semaphores": sem}),
        "CommandList.append_work": (commands.append_work, {}),
        "CommandList.append_barrier": (commands.append_barrier, {}),
        "CommandList.append_copy": (commands.append_copy, {"dst": buffer, "src": staging}),
        "CommandList.append_fill": (commands.append_fill, {"dst": buffer, "pattern": b"a"}),
        "CommandList.synchronize": (device.create_command_list().synchronize, {}),
        "Event.wait": (bound.wait, {}), "Event.add_done_callback": (bound.add_done_callback, {}),
        "wait for a batch": (lambda params: commands.append_wait([sem], params), {}),
        "wait for one of a batch": (lambda params: commands.append_wait([sem], [params]), {}),
        "wait for a member": (lambda sem: commands.append_wait([sem], [0]), {}),
        "signal of one of a batch": (lambda params: commands.append_signal([sem], [params]), {}),
        "one event": (lambda event: commands.append_barrier(wait_events=[event]), {}),
        "one memory": (lambda memory: commands.append_wait(sem, 0, acquire=[memory]), {}),
    }


def image_calls(device: Device) -> Calls:
    """Return the calls of images, and those with an array of another library."""
    memory, commands = device.create_memory(MEMORY, 1 << 16), device.create_command_list()
    buffer = memory.map_buffer(shape=(4, 8, 4))
    image = memory.map_mipmapped_array(MipmapDesc(**IMAGE, offset=8192))
    level = image.level(0)
    interface = {"shape": (4,), "typestr": "|u1", "data": (buffer.address, False), "strides": None, "version": 3}
    of_levels = {"dst": level, "src": level, "src_offset": (0, 0, 0)}
    return {
        "MipmappedArray.level": (image.level, {"index": 0}), "MipmapLevel.read": (level.read, {}),
        "MipmapLevel.write": (level.write, {"array": np.zeros((4, 8, 4), np.uint8)}),
        "copy of a level": (commands.append_copy, {"dst": buffer, "src": level}),
        "copy of levels": (lambda **given: commands.append_copy(**{**of_levels, **given}), {}),
        "share of a size": (lambda size: device.share(buffer.address, size=size), {}),
        **{f"share of an interface: {key}": (
            partial(shared, device, interface, key), {})
           for key in (*interface, "mask")},
        "share of an address": (lambda value: shared(device, interface, "data", (value, False)), {}),
        "share of DLPack's device": (lambda value: device.share(DLPack(value, buffer.__dlpack__())), {}),
        "share of a capsule": (lambda value: device.share(DLPack((2, 0), value)), {}),
    }


PARAMETERS = {   # of the calls above that take any
    "copy of levels": ["offset", "extent", "layer", "layers", "src_offset", "src_layer", "row_pitch", "slice_pitch"],
    "wait on the host": ["semaphores", "params", "wait_events", "signal_event", "acquire", "wait_on", "timeout_s"],
}
TAKES_NUMBERS = {"OwnedHandle", "Device.command_list", "Device.event"}
RINGS = sys.platform == "linux"
NOT_CALLED = {
    "Device": "made by open_device", "DeviceInfo": "made by backends", "Capabilities": "made by backends",
    "BackendInfo": "made by xsem", "PendingOp": "made by xsem", "Signaller": "made by xsem",
    "SignallerProcess": "made by xsem", "CommonTypes": "made by xsem", "Recording": "test_recording.py has its call",
    "trace": "it would write files of odd names; test_trace.py has paths that are none",
}


def wrong(name: str, call: Callable[..., Any], usual: dict[str, Any]) -> list[str]:
    """Return the raw errors of one call."""
    found = []
    for parameter in PARAMETERS.get(name, parameters(call)):
        kept = {key: value for key, value in usual.items() if key in parameters(call)}
        but = (NUMBERS | {"2**40", "-1"} if name in TAKES_NUMBERS else frozenset()) | (
            WAITS if parameter in ("timeout_s", "after_s") else frozenset())
        permitted = (BufferError,) if name.endswith("__dlpack__") else ()
        found += [f"{name}: {each}" for each in raised(call, kept, parameter, but, permitted)]
    return found


@pytest.mark.parametrize("name", data_calls())
def test_value_of_another_type_is_refused(name: str) -> None:
    assert wrong(name, *data_calls()[name]) == []


class Images(ImageGpu):
    def __init__(self) -> None:
        super().__init__()
        declared = self._capabilities
        self._capabilities = dataclasses.replace(declared, image_formats=frozenset({"unorm8"}),
                                                 features=declared.features | {Feature.MEMORY_SHARING})


@pytest.fixture
def image_gpu() -> Iterator[Device]:
    with Device(INFO, Images()) as device:
        yield device


def close_ring(calls: Calls) -> None:
    for name in ("FrameReader.close", "FrameRing.close") if RINGS else ():
        calls[name][0]()


def test_objects_of_host_refuse_values_of_another_type(device: Device) -> None:
    calls = device_calls(device)
    assert [each for name, call in calls.items() for each in wrong(name, *call)] == []
    close_ring(calls)


def test_images_and_shared_arrays_refuse_values_of_another_type(image_gpu: Device) -> None:
    assert [each for name, call in image_calls(image_gpu).items() for each in wrong(name, *call)] == []


def test_every_public_call_is_tried(device: Device, image_gpu: Device) -> None:
    calls = device_calls(device)
    tried = {*data_calls(), *calls, *image_calls(image_gpu)}
    close_ring(calls)
    missing = []
    for name in xsem.__all__:
        public = getattr(xsem, name)
        if inspect.isclass(public) and issubclass(public, BaseException):
            continue
        if inspect.isfunction(public) and parameters(public) and name not in {*tried, *NOT_CALLED}:
            missing.append(name)
        if not RINGS and name in ("FrameRing", "FrameReader"):
            continue
        if not inspect.isclass(public) or name in NOT_CALLED or getattr(public, "_is_protocol", False):
            continue
        for method in vars(public):
            call = getattr(public, method)
            if (callable(call) and not inspect.isclass(call) and parameters(call)
                    and (not method.startswith("_") or method in ("__call__", "__dlpack__"))
                    and f"{name}.{method}" not in tried):
                missing.append(f"{name}.{method}")
    assert missing == []
