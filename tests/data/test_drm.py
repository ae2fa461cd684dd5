"""Layouts of images in dma-bufs: fields, and their place in a MemoryDesc."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from xsem.data.drm import modifier_name
from xsem.errors import BadArgumentError
from xsem.types import DrmLayout, DrmPlane, MemoryDesc, MemoryHandleType

PLANE = DrmPlane(offset=0, pitch=256)


def layout(**fields: Any) -> DrmLayout:
    return DrmLayout(**{"modifier": 0, "planes": (PLANE,), **fields})


def reason(make: Any) -> str:
    with pytest.raises(BadArgumentError) as caught:
        make()
    return caught.value.reason


def test_fourcc_is_a_number_or_four_characters() -> None:
    assert layout(fourcc="AB24").fourcc == layout(fourcc=0x34324241).fourcc == 0x34324241
    assert layout(fourcc="R8  ").fourcc == int.from_bytes(b"R8  ", "little")
    assert layout().fourcc is None


@pytest.mark.parametrize("fourcc", ["", "AB2", "AB244", "AB2\n", "\u00e9B24", 0, 2**32, -1])
def test_bad_fourcc_is_refused(fourcc: Any) -> None:
    assert reason(lambda: layout(fourcc=fourcc)) == "bad_fourcc"


@pytest.mark.parametrize("modifier", [-1, 2**64, 0x00FFFFFFFFFFFFFF])
def test_bad_modifier_is_refused(modifier: int) -> None:
    assert reason(lambda: layout(modifier=modifier)) == "bad_modifier"
    assert layout(modifier=2**64 - 1).modifier == 2**64 - 1


@pytest.mark.parametrize("planes", [(), (PLANE,) * 5, ((0, 256),), PLANE, None, (PLANE, None)])
def test_bad_planes_are_refused(planes: Any) -> None:
    assert reason(lambda: layout(planes=planes)) == "bad_plane"
    assert layout(planes=[PLANE, PLANE]).planes == (PLANE, PLANE)


@pytest.mark.parametrize(("fields", "expected"), [
    ({"pitch": 0}, "bad_pitch"), ({"pitch": -256}, "bad_pitch"), ({"pitch": 2**32}, "bad_pitch"),
    ({"offset": -1}, "bad_plane"), ({"offset": 2**64}, "bad_plane"), ({"pitch": 1.5}, "not_an_int"),
])
def test_bad_offset_and_bad_pitch_are_refused(fields: dict[str, Any], expected: str) -> None:
    assert reason(lambda: DrmPlane(**{"offset": 0, "pitch": 256, **fields})) == expected


def test_layout_belongs_to_a_dma_buf_and_its_planes_begin_within_it() -> None:
    assert MemoryDesc.dmabuf_fd(5, allocation_size=4096, drm_layout=layout()).drm_layout == layout()
    assert MemoryDesc.dmabuf_fd(5, allocation_size=4096).drm_layout is None
    beyond = layout(planes=(PLANE, DrmPlane(offset=4096, pitch=1)))
    assert reason(lambda: MemoryDesc.dmabuf_fd(5, allocation_size=4096, drm_layout=beyond)) == "bad_plane"
    wrong: Any = (0, 256)
    assert reason(lambda: MemoryDesc.dmabuf_fd(5, allocation_size=4096, drm_layout=wrong)) == "bad_layout"
    assert reason(lambda: MemoryDesc(type=MemoryHandleType.OPAQUE_FD, handle=5, allocation_size=4096,
                                     drm_layout=layout())) == "layout_not_allowed"


@pytest.mark.parametrize(("modifier", "name"), [
    (0, "DRM_FORMAT_MOD_LINEAR"), (1 << 56 | 1, "INTEL 0x0100000000000001"),
    (3 << 56 | 0x10, "NVIDIA 0x0300000000000010"),
    (200 << 56, "vendor 200 0xc800000000000000"),
])
def test_name_of_a_modifier_has_its_vendor(modifier: int, name: str) -> None:
    assert modifier_name(modifier) == name


PROGRAM = """
import multiprocessing, os
from xsem.types import DrmLayout, DrmPlane, MemoryDesc

def child(desc, answers):
    with desc:
        answers.put((desc.drm_layout, os.fstat(desc.handle.fileno()).st_size))

if __name__ == "__main__":
    fd = os.memfd_create("buffer")
    os.ftruncate(fd, 4096)
    layout = DrmLayout(modifier=1 << 56, planes=(DrmPlane(offset=64, pitch=256),), fourcc="AB24")
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    desc = MemoryDesc.dmabuf_fd(fd, allocation_size=4096, drm_layout=layout)
    process = context.Process(target=child, args=(desc, answers))
    process.start()
    assert answers.get(timeout=40) == (layout, 4096)
    process.join(40)
    print(process.exitcode)
"""


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")
def test_layout_reaches_a_spawned_process(tmp_path: Path) -> None:
    assert pickle.loads(pickle.dumps(layout())) == layout()
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=False, timeout=55)
    assert (done.stdout, done.stderr) == ("0\n", "")
