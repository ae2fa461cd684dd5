"""Images of every shape between Vulkan and OpenGL, as a program.

    tests/drivers/zink -- python -m support.gl_images

On a GPU: PYTHONPATH=tests python -m support.gl_images
"""

from __future__ import annotations

import os
from typing import Final
from unittest import mock

import numpy as np

import xsem
from xsem.types import MipmapDesc

BYTES: Final = 1 << 20
PAD: Final = 7
SHAPES: Final = {   # of MipmapDesc, by the target of the texture
    ("1D", "levels"): {"extent": (64, 0, 0), "levels": 3},
    ("1D_ARRAY", "layers"): {"extent": (64, 0, 0), "layers": 3},
    ("2D", "odd, with levels"): {"extent": (37, 19, 0), "levels": 6},
    ("2D", "colour and surface"): {
        "extent": (64, 32, 0), "levels": 3, "color_attachment": True, "surface_load_store": True},
    ("2D_ARRAY", "layers and levels"): {"extent": (16, 8, 0), "layers": 3, "levels": 3},
    ("3D", "levels"): {"extent": (16, 8, 4), "levels": 4},
    ("CUBE_MAP", "one cube"): {"extent": (16, 16, 0), "layers": 6, "cubemap": True, "levels": 3},
    ("CUBE_MAP_ARRAY", "two cubes"): {"extent": (16, 16, 0), "layers": 12, "cubemap": True},
    ("CUBE_MAP_ARRAY", "an array of one cube"): {
        "extent": (16, 16, 0), "layers": 6, "cubemap": True, "layered_cubemap": True},
    ("2D", "at an offset"): {"extent": (64, 32, 0), "levels": 2, "offset": 1 << 16},
}


def main() -> None:
    """Check that both APIs see one image, and the copies of some layers."""
    os.environ["PYOPENGL_PLATFORM"] = "egl"
    from xsem_opengl import answers
    from xsem_opengl.contexts import Context, displays
    from xsem_opengl.loader import load

    gl = load()
    context = Context.create(gl, displays(gl)[0])
    context.make_current()
    # zink declares single levels only, because it ignores offsets. The levels are right there.
    with (mock.patch.object(answers, "_ZINK", answers._ZINK._replace(offsets=True)),
          xsem.open_device("opengl", native=context.address) as device,
          xsem.open_device("vulkan", uuid=device.info.uuid) as vulkan,
          vulkan.create_memory("OPAQUE_FD", BYTES) as memory, vulkan.create_memory("OPAQUE_FD", BYTES) as other):
        with memory.export(for_device=device) as desc, other.export(for_device=device) as second:
            here, there = device.import_memory(desc), device.import_memory(second)
        for seed, ((target, what), shape) in enumerate(SHAPES.items()):
            image = MipmapDesc(format="uint8", channels=4, **shape)   # type: ignore[arg-type]
            if image.offset and device.info.name.startswith("zink"):
                continue
            with (here.map_mipmapped_array(image) as ours, memory.map_mipmapped_array(image) as theirs,
                  there.map_mipmapped_array(image) as copy):
                gl.glBindTexture(getattr(gl, f"GL_TEXTURE_{target}"), ours.native_handle)   # fails for another target
                try:
                    is_one_image(ours, theirs, seed)
                    if image.layers:
                        layers_are_copied(device, ours, copy)
                except AssertionError as error:
                    print(f"{target}, {what}: {error}")   # and the others are tried, too
    context.destroy()
    print("done")


def is_one_image(one: xsem.MipmappedArray, other: xsem.MipmappedArray, seed: int) -> None:
    """Write all levels on one side and read them on the other, both ways."""
    noise = np.random.default_rng(seed)
    for writer, reader in ((one, other), (other, one)):
        written = []
        for index in range(one.desc.levels):
            level = writer.level(index)
            shape = level.read().shape
            written.append(noise.integers(0, 256, shape, np.uint8))
            level.write(written[-1])
        for index, data in enumerate(written):
            assert np.array_equal(reader.level(index).read(), data), f"level {index}"


def layers_are_copied(device: xsem.Device, source: xsem.MipmappedArray, target: xsem.MipmappedArray) -> None:
    """Copy layers 1 and 2 of level 0 to rows with padding, and layer 2 to layer 1 of another image."""
    level, commands = source.level(0), device.create_command_list()
    width, height, _ = level.extent
    row, rows = 4 * (width + PAD), (height or 1) + PAD
    with device.host_buffer(2 * row * rows) as buffer:
        found = buffer.numpy()
        found[:] = 0
        size = row * rows + row * ((height or 1) - 1) + 4 * width
        commands.append_copy(buffer.view((size,), "uint8"), level, layer=1, layers=2, row_pitch=row,
                             slice_pitch=row * rows)
        commands.append_copy(target.level(0), level, layer=1, layers=1, src_layer=2)
        commands.synchronize()
        layers = level.read().reshape(-1, height or 1, 4 * width)
        wanted = np.zeros((2, rows, row), np.uint8)
        wanted[:, :height or 1, :4 * width] = layers[1:3]
        assert found.tobytes() == wanted.tobytes(), "rows with padding"
        copied = target.level(0).read().reshape(layers.shape)
        assert np.array_equal(copied[1], layers[2]), "a layer of another image"


if __name__ == "__main__":
    main()
