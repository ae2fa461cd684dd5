"""Descriptors of images, and wrong types in every field of each dataclass."""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

import numpy as np
import pytest
from support.descriptors import make

from xsem.data.peers import Peer
from xsem.errors import BadArgumentError, XsemError
from xsem.types import (
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


# ---- wrong types, in every field
TAKEN: dict[type, tuple[dict[str, Any], dict[str, tuple[type, ...]]]] = {
    SemaphoreDesc: (
        {"type": S.OPAQUE_FD, "handle": 5},
        {"type": (S,), "handle": (int,), "name": (type(None),), "device_uuid": (uuid.UUID, type(None)),
         "driver_uuid": (uuid.UUID, type(None)), "peer": (Peer, type(None))}),
    MemoryDesc: (
        {"type": M.OPAQUE_FD, "handle": 5, "allocation_size": 4096},
        {"type": (M,), "allocation_size": (int,), "handle": (int,), "name": (type(None),), "dedicated": (bool,),
         "device_uuid": (uuid.UUID, type(None)), "driver_uuid": (uuid.UUID, type(None))}),
    MipmapDesc: (
        {"extent": (8, 8, 0), "format": "uint8", "channels": 4},
        {"extent": (tuple,), "format": (str,), "channels": (int,), "levels": (int,), "layers": (int,),
         "offset": (int,), "cubemap": (bool,), "surface_load_store": (bool,), "color_attachment": (bool,)}),
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
