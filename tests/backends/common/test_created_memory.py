"""Test what the suite leaves open of created memory and its mappings: refusals, file descriptors, addresses."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
import pytest
from support.each_device import on_each, sides
from support.open_files import few_more_files

import xsem
from xsem.types import MemoryHandleType, MipmapDesc, OwnedHandle

OPAQUE = MemoryHandleType.OPAQUE_FD
CREATORS = ("host", "cuda", "levelzero", "vulkan")


@on_each(*CREATORS)
def test_memory_that_cannot_be_had_is_out_of_memory(name: str) -> None:
    with sides(name) as at:
        for size in (2**62, 2**63, 2**64 - 1):
            for create in (partial(at.here.create_memory, OPAQUE), at.here.host_buffer):
                with pytest.raises(xsem.OutOfMemoryError) as caught:
                    create(size)
                assert (caught.value.reason, caught.value.backend) == ("out_of_memory", name)
        assert at.here.create_memory(OPAQUE, 1).allocation_size >= 1


@on_each(*CREATORS)
def test_export_is_for_this_program_only(name: str) -> None:
    with sides(name) as at, at.here.create_memory(OPAQUE, 4096).export() as desc:
        assert isinstance(desc.handle, OwnedHandle)
        assert not os.get_inheritable(desc.handle.fileno())


@on_each(*CREATORS)
def test_export_without_a_free_file_descriptor_names_the_limit(name: str) -> None:
    with sides(name) as at:
        created = at.here.create_memory(OPAQUE, 4096)
        created.export().close()   # a driver may open files of its own once
        with few_more_files(0), pytest.raises(xsem.BusyError) as caught:
            created.export()
        assert (caught.value.reason, caught.value.backend) == ("fd_limit", name)
        created.export().close()


@on_each("cuda", "levelzero", levelzero={"SIMZE_IMAGES": "1"})
def test_image_on_created_memory_is_refused_where_only_imported_memory_has_images(name: str) -> None:
    with sides(name) as at:
        created = at.here.create_memory(OPAQUE, 1 << 16)
        with pytest.raises(xsem.UnsupportedError, match="imported memory") as caught:
            created.map_mipmapped_array(MipmapDesc(extent=(16, 16, 0), format="uint8", channels=4))
        assert caught.value.reason == "created_memory"


@on_each("opencl", "vulkan")
def test_mapping_without_an_address_is_no_array(name: str) -> None:
    with sides(name) as at:
        buffer = at.memory()[1].map_buffer()
        with pytest.raises(xsem.UnsupportedError) as caught:
            _ = buffer.address
        assert caught.value.capability == "address"
        assert buffer.__dlpack_device__() == ({"opencl": 4, "vulkan": 7}[name], 0)
        for export in (buffer.numpy, buffer.__dlpack__, lambda: np.from_dlpack(buffer)):
            with pytest.raises(BufferError):
                export()
