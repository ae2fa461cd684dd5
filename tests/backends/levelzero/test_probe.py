"""Test the creation of a DRM syncobj, the object for the trial of Intel's driver, by the kernel's numbers and structs.

No machine of these tests has a render node, so this file simulates the kernel.
"""

from __future__ import annotations

import fcntl
import glob
import os
import struct
from pathlib import Path

import pytest

from xsem_levelzero import probe as _probe


def test_numbers_are_those_of_the_kernels_header() -> None:
    # drm.h: DRM_IOWR(0xBF, struct drm_syncobj_create), 0xC0 with …_destroy, 0xC1 with the first form of …_handle, of
    # 16 bytes (handle, flags, fd, pad). Newer kernels have a larger struct and still take this one.
    assert (_probe._CREATE, _probe._DESTROY, _probe._HANDLE_TO_FD) == (0xC00864BF, 0xC00864C0, 0xC01064C1)
    assert (struct.calcsize("=II"), struct.calcsize("=IIiI")) == (8, 16)


class Kernel:
    """Two render nodes, of which the first has no syncobjs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self.nodes = [tmp_path / "renderD128", tmp_path / "renderD129"]
        for node in self.nodes:
            node.touch()
        monkeypatch.setattr(glob, "glob", lambda pattern: [str(node) for node in self.nodes])
        monkeypatch.setattr(fcntl, "ioctl", self.ioctl)

    def ioctl(self, fd: int, number: int, data: bytes) -> bytes:
        if os.path.realpath(f"/proc/self/fd/{fd}") == str(self.nodes[0]):
            raise OSError(95, "Operation not supported")
        self.calls.append(({_probe._CREATE: "create", _probe._DESTROY: "destroy",
                            _probe._HANDLE_TO_FD: "to_fd"}[number], data))
        if number == _probe._CREATE:
            return struct.pack("=II", 5, 0)
        if number == _probe._HANDLE_TO_FD:
            return struct.pack("=IIiI", 5, 0, os.eventfd(0), 0)
        return data


def test_syncobj_uses_first_capable_node_and_destroys_its_handle(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kernel = Kernel(monkeypatch, tmp_path)
    made = _probe._syncobj()
    assert made is not None
    with made:
        assert os.readlink(f"/proc/self/fd/{made.fileno()}") == "anon_inode:[eventfd]"
    assert kernel.calls == [
        ("create", struct.pack("=II", 0, 0)), ("to_fd", struct.pack("=IIiI", 5, 0, -1, 0)),
        ("destroy", struct.pack("=II", 5, 0))]


def test_machine_without_syncobjs_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    kernel = Kernel(monkeypatch, tmp_path)
    kernel.nodes.pop()
    assert _probe._syncobj() is None
    kernel.nodes.clear()
    assert _probe._syncobj() is None


def test_timeline_page_is_one_of_the_hosts() -> None:
    from xsem.portable import open_timeline

    page = _probe._timeline_page()
    assert page is not None
    timeline = open_timeline(page)
    assert timeline.value == 0
    timeline.signal(7)
    assert timeline.value == 7
    timeline.close()
