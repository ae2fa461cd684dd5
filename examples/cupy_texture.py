"""CuPy samples an image that Vulkan allocated as a CUDA texture: in the tiled layout, without a copy.

`MipmapLevel.native_handle` is the cudaArray_t of the level. CuPy's class for textures takes only arrays of its own, so
this program fills the resource descriptor, and CuPy's runtime makes the texture object.

    python examples/cupy_texture.py
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import sys
from typing import Any

import numpy as np

import xsem

WIDTH, HEIGHT = 320, 240
DESC = xsem.MipmapDesc(extent=(WIDTH, HEIGHT, 0), format="uint8", channels=4)
KERNEL = r"""
extern "C" __global__ void mirror(cudaTextureObject_t texture, uchar4 *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[y * width + x] = tex2D<uchar4>(texture, width - 1 - x + 0.5f, y + 0.5f);
}
"""


class ResourceDesc(ctypes.Structure):
    """cudaResourceDesc of an array: its type, 0, and the cudaArray_t. Larger than the struct of any CUDA version."""

    _fields_ = (("type", ctypes.c_int), ("array", ctypes.c_uint64), ("rest", ctypes.c_byte * 240))


def picture(frame: int) -> Any:
    """Return frame number `frame`."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    return np.stack([x + frame, y, (x * y) >> 4, np.full_like(x, frame)], axis=-1).astype(np.uint8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=30)
    asked = parser.parse_args()
    try:
        cupy: Any = importlib.import_module("cupy")
    except ImportError:
        print("cupy_texture: CuPy is missing: pip install cupy-cuda13x", file=sys.stderr)
        return 2

    wrong = 0
    with xsem.open_device("cuda:0") as cuda, xsem.open_device("vulkan", uuid=cuda.info.uuid) as vulkan:
        drawn = vulkan.create_timeline(label="drawn")
        shared = vulkan.create_memory("OPAQUE_FD", 4 << 20, dedicated=False)
        with drawn.export(for_device=cuda) as desc:
            seen = cuda.import_semaphore(desc)
        with shared.export(for_device=cuda) as memory_desc:
            memory = cuda.import_memory(memory_desc)
        theirs, image = shared.map_mipmapped_array(DESC), memory.map_mipmapped_array(DESC)
        there, draws = theirs.level(0), vulkan.create_command_list()

        resource = ResourceDesc(type=0, array=image.level(0).native_handle)
        settings = cupy.cuda.texture.TextureDescriptor()   # not normalized, nearest pixel
        runtime = cupy.cuda.runtime
        texture = runtime.createTextureObject(ctypes.addressof(resource), settings.ptr)
        try:
            mirror = cupy.RawKernel(KERNEL, "mirror")
            out = cupy.empty((HEIGHT, WIDTH, 4), np.uint8)
            blocks, threads = ((WIDTH + 15) // 16, (HEIGHT + 15) // 16), (16, 16)
            arguments = (np.uint64(texture), out, np.int32(WIDTH), np.int32(HEIGHT))
            mirror(blocks, threads, arguments)   # the first launch loads the kernel, before any wait is pending
            commands = cuda.create_command_list()
            for frame in range(asked.frames):
                there.write(picture(frame))
                draws.append_signal(drawn, frame + 1, release=[shared])
                commands.append_wait(seen, frame + 1, acquire=[memory])
                with commands.as_current():   # CuPy launches on the list's stream, behind the wait
                    mirror(blocks, threads, arguments)
                    found = out.get()   # waits for the kernel
                wrong += not (found == picture(frame)[:, ::-1]).all()
        finally:
            runtime.destroyTextureObject(texture)
    print(f"cupy_texture: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"cupy_texture: {error}")
