"""Test appended copies of images that the suite lacks: every shape and format, and a release behind a pending copy."""

from __future__ import annotations

import numpy as np
from support.each_device import on_each, sides
from support.image_exercise import BLOCKS, FORMATS, PLANES, SHAPES, SIMPLE, exercise, write_pixels
from support.importer import BOUND_S

from xsem.types import Feature

WITH_IMAGES = {"levelzero": {"SIMZE_IMAGES": "1"}}
SIZE = 1 << 18
DESC = SIMPLE["2D"]


@on_each("cuda", "levelzero", "vulkan", **WITH_IMAGES)
def test_regions_of_every_shape_and_format_are_copied_exactly(name: str) -> None:
    with sides(name) as at:
        declared = at.here.capabilities
        descs = {what: desc for what, desc in (SHAPES | FORMATS | BLOCKS | PLANES).items()
                 if desc.format in declared.image_formats
                 and (Feature.MIPMAPPED_ARRAY in declared.features or not desc.beyond_image)}
        assert descs.keys() >= SIMPLE.keys() | {"unorm8", "snorm16", "unorm_10_10_10_2"}
        buffer = at.memory(1 << 14)[1].map_buffer()
        exercise(at.here, at.here.create_command_list(), at.memory(SIZE)[1], buffer, descs)


@on_each("cuda", "levelzero", "vulkan", **WITH_IMAGES)
def test_image_is_released_behind_a_pending_copy(name: str) -> None:
    with sides(name) as at:
        (gate_there, gate), (_, memory) = at.semaphore(), at.memory(SIZE)
        image = memory.map_mipmapped_array(DESC)
        pixels = np.arange(960, dtype=np.uint32).astype(np.uint8).reshape(1, 10, 24, 4)
        write_pixels(image.level(0), DESC, pixels)
        commands, buffer = at.here.create_command_list(), at.here.host_buffer(960)
        buffer.numpy()[...] = 0
        commands.append_wait(gate, at.value(1))
        commands.append_copy(buffer, image.level(0))
        image.release()   # a stand-in ends the process if an image in use is destroyed
        memory.release()
        assert [op.operation for op in at.here.pending()] == ["wait", "copy"]
        assert len(at.here.releasing()) >= 2
        assert not buffer.numpy().any()
        at.signal(gate_there, 1)
        commands.synchronize(timeout_s=BOUND_S)
        assert (buffer.numpy() == pixels.reshape(-1)).all()
