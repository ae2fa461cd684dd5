"""Test the objects that the Level Zero backend creates, on a simulated kernel: no render node exists here."""

from __future__ import annotations

import os
import struct

from support.syncobjs import syncobjs

from xsem.types import OwnedHandle
from xsem_levelzero import objects


def test_numbers_are_those_of_the_kernels_header() -> None:
    # drm.h: DRM_IOWR with struct drm_syncobj_create, …_destroy, the first form of …_handle of 16 bytes (handle, flags,
    # fd, pad), and …_timeline_array. Newer kernels have a larger …_handle and still take this one.
    assert (objects.CREATE, objects.DESTROY) == (0xC00864BF, 0xC00864C0)
    assert (objects.HANDLE_TO_FD, objects.FD_TO_HANDLE) == (0xC01064C1, 0xC01064C2)
    assert (objects.QUERY, objects.TIMELINE_SIGNAL) == (0xC01864CB, 0xC01864CD)
    assert (struct.calcsize("=II"), struct.calcsize("=IIiI"), struct.calcsize("=QQII")) == (8, 16, 24)


def test_syncobj_uses_first_capable_node_and_destroys_its_handle() -> None:
    with syncobjs() as kernel:
        made = objects.Syncobj.create()
        assert made is not None
        made.signal(7)
        with made.export() as fd:
            made.close()
            again = objects.counter_of(fd.fileno())
            assert isinstance(again, objects._Page)   # the simulated syncobj is a page
            assert again.value() == 7
            opened = objects.Syncobj.opened(fd.fileno())
        assert opened is not None
        assert opened.value() == 7
        opened.close()
    assert [name for name, _ in kernel.calls] == ["create", "signal", "to_fd", "destroy", "from_fd", "query", "destroy"]
    assert kernel.calls[0][1] == struct.pack("=II", 0, 0)
    assert kernel.calls[2][1] == struct.pack("=IIiI", 5, 0, -1, 0)
    assert set(kernel.handles.values()) == {-1}


def test_machine_without_syncobjs_has_none() -> None:
    with syncobjs() as kernel:
        kernel.nodes.pop()
        assert objects.Syncobj.create() is None
        kernel.nodes.clear()
        assert objects.Syncobj.create() is None


def test_other_files_have_no_counter() -> None:
    with syncobjs(), OwnedHandle(os.eventfd(0)) as other:
        assert objects.counter_of(other.fileno()) is None


def test_timeline_page_is_one_of_the_hosts() -> None:
    from xsem.portable import open_timeline

    page = objects.timeline_page(3)
    assert page is not None
    timeline = open_timeline(page)
    assert timeline.value == 3
    timeline.signal(7)
    assert timeline.value == 7
    timeline.close()
