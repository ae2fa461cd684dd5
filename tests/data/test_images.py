"""Descriptors of images, and wrong types in every field of each dataclass."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import numpy as np
import pytest
from support.descriptors import make

from xsem.data.image_formats import FLAGS, FORMATS
from xsem.data.images import least_size, level_layout
from xsem.data.peers import Peer
from xsem.errors import BadArgumentError, XsemError
from xsem.types import (
    DrmLayout,
    DrmPlane,
    MemoryChunk,
    MemoryDesc,
    MemoryHandleType,
    MipmapDesc,
    SemaphoreDesc,
    SemaphoreHandleType,
    SignalParams,
    WaitParams,
)

S = SemaphoreHandleType
M = MemoryHandleType


# ---- images
def image(**fields: Any) -> MipmapDesc:
    return MipmapDesc(**{"extent": (64, 32, 0), "format": "uint8", "channels": 4, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"extent": (1, 0, 0)},
        {"extent": (64, 0, 0)},
        {"extent": (64, 64, 64), "levels": 7},
        {"extent": (64, 0, 0), "layers": 3},
        {"extent": (64, 32, 0), "layers": 2048},
        {"extent": (64, 64, 0), "layers": 6, "cubemap": True},
        {"extent": (64, 64, 0), "layers": 12, "cubemap": True, "levels": 7},
        {"channels": 1},
        {"channels": 2},
        {"offset": 2**64 - 1},
        {"surface_load_store": True, "color_attachment": True},
        {"extent": (64, 64, 0), "layers": 6, "cubemap": True, "layered_cubemap": True},
        {"texture_gather": True, "deferred_mapping": True, "sparse": True, "video": True},
        {"format": "unorm16", "channels": 1, "depth_texture": True},
        {"format": "float32", "channels": 1, "depth_texture": True, "layers": 6, "extent": (8, 8, 0), "cubemap": True},
    ],
    ids=str,
)
def test_every_shape_that_cuda_knows_is_taken(fields: dict[str, Any]) -> None:
    desc = image(**fields)
    for field, value in fields.items():
        assert getattr(desc, field) == value


@pytest.mark.parametrize("component", ["uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32"])
def test_formats_are_those_of_cuarray_format(component: str) -> None:
    assert image(format=component).format == component


@pytest.mark.parametrize("component", ["float64", "uint64", "int64", "bool", "bfloat16", "complex64", "u1", "", 1])
def test_other_formats_are_refused(component: Any) -> None:
    with pytest.raises(BadArgumentError) as caught:
        image(format=component)
    assert caught.value.reason == "bad_format"


@pytest.mark.parametrize("component", [np.dtype("uint8"), np.uint8, np.array(["uint8"]), None, b"uint8"])
def test_format_is_a_name_not_a_dtype(component: Any) -> None:
    # np.dtype("uint8") equals "uint8", but a table with names as keys does not contain it.
    with pytest.raises(BadArgumentError) as caught:
        image(format=component)
    assert caught.value.reason == "bad_format"


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_has_its_numbers_of_channels(name: str) -> None:
    taken = FORMATS[name].channels
    for channels in (1, 2, 3, 4):
        if channels in taken:
            assert image(format=name, channels=channels).channels == channels
            continue
        with pytest.raises(BadArgumentError, match=f"channels of {name!r} is {taken[0]}") as caught:
            image(format=name, channels=channels)
        assert caught.value.reason == "bad_channels"


@pytest.mark.parametrize(("fields", "shapes", "dtype", "size"), [
    ({"format": "unorm8", "channels": 2}, [(32, 64, 2)], "uint8", 64 * 32 * 2),
    ({"format": "snorm16", "channels": 1}, [(32, 64, 1)], "int16", 64 * 32 * 2),
    ({"format": "unorm_10_10_10_2", "layers": 2}, [(2, 32, 64, 1)], "uint32", 64 * 32 * 4 * 2),
    ({"format": "bc1_unorm", "levels": 4}, [(8, 16, 8), (4, 8, 8), (2, 4, 8), (1, 2, 8)], "uint8", 8 * 170),
    ({"format": "bc7_unorm_srgb", "extent": (37, 19, 0)}, [(5, 10, 16)], "uint8", 800),
    ({"format": "bc6h_uf16", "channels": 3, "extent": (8, 8, 8), "levels": 4},
     [(8, 2, 2, 16), (4, 1, 1, 16), (2, 1, 1, 16), (1, 1, 1, 16)], "uint8", 16 * 39),
], ids=str)
def test_levels_of_a_format_have_rows_of_elements_or_of_blocks(
    fields: dict[str, Any], shapes: list[tuple[int, ...]], dtype: str, size: int
) -> None:
    desc = image(**fields)
    layouts = [level_layout(desc, level) for level in range(desc.levels)]
    assert [each.shape for each in layouts] == shapes
    assert {each.dtype for each in layouts} == {dtype}
    assert least_size(desc) == sum(each.size for each in layouts) == size


@pytest.mark.parametrize(("name", "dtype", "plane"), [("nv12", "uint8", "unorm8"), ("p010", "uint16", "unorm16")])
def test_planes_are_luma_and_chroma_of_half_the_size(name: str, dtype: str, plane: str) -> None:
    desc = image(format=name, channels=3, texture_gather=True, offset=4096)
    luma, chroma = level_layout(desc), level_layout(desc, plane=1)
    assert (luma.extent, luma.shape, luma.dtype) == ((64, 32, 0), (32, 64, 1), dtype)
    assert (chroma.extent, chroma.shape, chroma.dtype) == ((32, 16, 0), (16, 32, 2), dtype)
    assert least_size(desc) == luma.size + chroma.size == 64 * 32 * 3 // 2 * np.dtype(dtype).itemsize
    alone = [desc.plane(0, offset=0), desc.plane(1, offset=luma.size)]
    assert alone == [MipmapDesc(extent=(64, 32, 0), format=plane, channels=1, texture_gather=True),
                     MipmapDesc(extent=(32, 16, 0), format=plane, channels=2, texture_gather=True, offset=luma.size)]
    assert [level_layout(each).size for each in alone] == [luma.size, chroma.size]
    for wrong in (-1, 2):
        with pytest.raises(BadArgumentError) as caught:
            desc.plane(wrong, offset=0)
        assert caught.value.reason == "bad_plane"


def test_image_of_one_plane_has_no_planes() -> None:
    with pytest.raises(BadArgumentError, match="uint8 has no planes") as caught:
        image().plane(0, offset=0)
    assert caught.value.reason == "bad_plane"


def test_flags_are_listed_by_name() -> None:
    assert image().flags == ()
    assert image(extent=(8, 8, 0), layers=6, cubemap=True, sparse=True, layered_cubemap=True).flags == (
        "cubemap", "sparse")


# ---- wrong types, in every field
TAKEN: dict[type, tuple[dict[str, Any], dict[str, tuple[type, ...]]]] = {
    SemaphoreDesc: (
        {"type": S.OPAQUE_FD, "handle": 5},
        {"type": (S,), "handle": (int,), "name": (type(None),), "device_uuid": (uuid.UUID, type(None)),
         "driver_uuid": (uuid.UUID, type(None)), "device_luid": (type(None),), "peer": (Peer, type(None))}),
    MemoryDesc: (
        {"type": M.OPAQUE_FD, "handle": 5, "allocation_size": 4096},
        {"type": (M,), "allocation_size": (int,), "handle": (int,), "name": (type(None),), "dedicated": (bool,),
         "device_uuid": (uuid.UUID, type(None)), "driver_uuid": (uuid.UUID, type(None)), "device_luid": (type(None),),
         "drm_layout": (type(None),), "chunks": (tuple,)}),
    MemoryChunk: ({"size": 4096, "handle": 5}, {"size": (int,), "handle": (int,)}),
    DrmPlane: ({"offset": 0, "pitch": 64}, {"offset": (int,), "pitch": (int,)}),
    DrmLayout: ({"modifier": 0, "planes": (DrmPlane(offset=0, pitch=64),)},
                {"modifier": (int,), "planes": (tuple,), "fourcc": (int, type(None))}),
    MipmapDesc: (
        {"extent": (8, 8, 0), "format": "uint8", "channels": 4},
        {"extent": (tuple,), "format": (str,), "channels": (int,), "levels": (int,), "layers": (int,),
         "offset": (int,), **dict.fromkeys((*FLAGS, "layered_cubemap"), (bool,))}),
    SignalParams: (
        {}, {"value": (int, type(None)), "key": (int, type(None)), "nvscisync_fence": (int, type(None)),
             "skip_nvscibuf_memsync": (bool,), "allow_rewind": (bool,)}),
    WaitParams: (
        {}, {"value": (int, type(None)), "key": (int, type(None)), "timeout_ms": (int, type(None)),
             "nvscisync_fence": (int, type(None)), "skip_nvscibuf_memsync": (bool,)}),
}
ODD: list[Any] = [None, True, False, 0, 1, -1, 2**70, 1.0, 2.5, float("nan"), "", "1", "False", "uint8", "a\0b",
                  "\ud800", b"", b"x", [], {}, (1, 2, 3), object(), int, np.int64(4), np.uint8(2), np.bool_(True),
                  np.float32(1), np.dtype("uint8"), np.uint8, np.array(3), np.array([1, 2, 3]),
                  S.OPAQUE_FD, M.OPAQUE_FD]


def test_fields_of_all_dataclasses_are_covered() -> None:
    for made, (_, fields) in TAKEN.items():
        assert {field.name for field in dataclasses.fields(made)} == set(fields)


@pytest.mark.parametrize(("made", "field"), [(made, field) for made in TAKEN for field in TAKEN[made][1]])
def test_field_holds_its_type_or_is_refused(made: Any, field: str) -> None:
    right, types = TAKEN[made][0], TAKEN[made][1][field]
    for value in ODD:
        try:
            desc = made(**{**right, field: value})
        except XsemError:
            continue
        assert type(getattr(desc, field)) in types, value


@pytest.mark.parametrize("place", [0, 1, 2])
def test_each_length_of_an_extent_is_an_int_or_is_refused(place: int) -> None:
    for value in ODD:
        extent: list[Any] = [8, 8, 0]
        extent[place] = value
        try:
            desc = image(extent=extent)
        except XsemError:
            continue
        assert type(desc.extent[place]) is int, value


@pytest.mark.parametrize("value", [0, 1, None, "False", np.bool_(True)])
def test_flag_is_a_bool(value: Any) -> None:
    for make_one in (
        lambda: image(cubemap=value), lambda: SignalParams(allow_rewind=value),
        lambda: WaitParams(skip_nvscibuf_memsync=value), lambda: make(M.OPAQUE_FD, handle=5, dedicated=value),
    ):
        with pytest.raises(BadArgumentError) as caught:
            make_one()
        assert caught.value.reason == "not_a_bool"


@pytest.mark.parametrize(
    ("extent", "most"),
    [((1, 0, 0), 1), ((2, 0, 0), 2), ((3, 0, 0), 2), ((63, 1, 0), 6), ((64, 1, 0), 7), ((1, 64, 0), 7), ((1, 1, 65), 7),
     ((16384, 16384, 0), 15)],
)
def test_levels_end_at_one_element(extent: tuple[int, int, int], most: int) -> None:
    # 1 + floor(log2(max(width, height, depth))): cuMipmappedArrayCreate clamps to it and would give fewer levels.
    assert image(extent=extent, levels=most).levels == most
    with pytest.raises(BadArgumentError) as caught:
        image(extent=extent, levels=most + 1)
    assert caught.value.reason == "bad_levels"


def test_layers_add_no_levels() -> None:
    with pytest.raises(BadArgumentError) as caught:
        image(extent=(4, 4, 0), layers=64, levels=4)
    assert caught.value.reason == "bad_levels"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"extent": (0, 0, 0)}, "bad_extent"),
        ({"extent": (-1, 1, 0)}, "bad_extent"),
        ({"extent": (4, -1, 0)}, "bad_extent"),
        ({"extent": (4, 4, -1)}, "bad_extent"),
        ({"extent": (4, 0, 4)}, "bad_extent"),
        ({"extent": (4, 4)}, "bad_extent"),
        ({"extent": (4, 4, 0, 0)}, "bad_extent"),
        ({"extent": 4}, "bad_extent"),
        ({"extent": None}, "bad_extent"),
        ({"extent": (4.0, 4, 0)}, "not_an_int"),
        ({"extent": (True, 4, 0)}, "not_an_int"),
        ({"channels": 0}, "bad_channels"),
        ({"channels": 3}, "bad_channels"),
        ({"channels": 8}, "bad_channels"),
        ({"channels": True}, "not_an_int"),
        ({"channels": 4.0}, "not_an_int"),
        ({"levels": 0}, "bad_levels"),
        ({"levels": True}, "not_an_int"),
        ({"layers": -1}, "bad_layers"),
        ({"layers": 2**32}, "bad_layers"),
        ({"layers": True}, "not_an_int"),
        ({"extent": (4, 4, 4), "layers": 2}, "bad_layers"),
        ({"offset": -1}, "bad_offset"),
        ({"offset": 2**64}, "bad_offset"),
        ({"offset": False}, "not_an_int"),
        ({"cubemap": True}, "bad_layers"),
        ({"extent": (64, 64, 0), "cubemap": True}, "bad_layers"),
        ({"extent": (64, 64, 0), "cubemap": True, "layers": 5}, "bad_layers"),
        ({"extent": (64, 64, 0), "cubemap": True, "layers": 7}, "bad_layers"),
        ({"extent": (64, 32, 0), "cubemap": True, "layers": 6}, "bad_layers"),
        ({"extent": (64, 64, 64), "cubemap": True, "layers": 6}, "bad_layers"),
        ({"layered_cubemap": True, "layers": 6}, "bad_flags"),
        ({"texture_gather": True, "extent": (64, 0, 0)}, "bad_flags"),
        ({"texture_gather": True, "extent": (8, 8, 8)}, "bad_flags"),
        ({"depth_texture": True}, "bad_format"),
        ({"depth_texture": True, "format": "float32", "channels": 2}, "bad_format"),
        ({"depth_texture": True, "format": "float16", "channels": 1}, "bad_format"),
        *(({"depth_texture": True, "format": "float32", "channels": 1, **more}, "bad_flags")
          for more in ({"color_attachment": True}, {"surface_load_store": True}, {"extent": (8, 0, 0)},
                       {"extent": (8, 8, 8)})),
        ({"format": "bc1_unorm", "extent": (64, 0, 0)}, "bad_extent"),
        ({"format": "bc1_unorm", "surface_load_store": True}, "bad_flags"),
        ({"format": "nv12", "channels": 3, "extent": (63, 32, 0)}, "bad_extent"),
        ({"format": "nv12", "channels": 3, "extent": (64, 31, 0)}, "bad_extent"),
        ({"format": "p010", "channels": 3, "extent": (64, 0, 0)}, "bad_extent"),
        ({"format": "p010", "channels": 3, "extent": (8, 8, 8)}, "bad_extent"),
        ({"format": "nv12", "channels": 3, "levels": 2}, "bad_levels"),
        ({"format": "nv12", "channels": 3, "layers": 1}, "bad_layers"),
    ],
    ids=str,
)
def test_images_that_cuda_would_refuse_are_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadArgumentError) as caught:
        image(**fields)
    assert caught.value.reason == reason


def test_an_extent_in_a_list_becomes_a_tuple() -> None:
    desc = image(extent=[8, 4, 0])
    assert desc.extent == (8, 4, 0)
    assert hash(desc) == hash(image(extent=(8, 4, 0)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        desc.levels = 2  # type: ignore[misc]
