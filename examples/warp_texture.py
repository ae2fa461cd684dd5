"""Warp samples an image that Vulkan has allocated as a texture: in the tiled layout, without a copy.

`MipmapLevel.native_handle` is the cudaArray_t of the level, which `warp.Texture2D` takes as `cuda_array`. xsem uses
Warp's own stream, so Warp's kernels run behind the wait for the frame.

    python examples/warp_texture.py --frames 30
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import numpy as np

import xsem
from renderer import HEIGHT, WIDTH, draw

if TYPE_CHECKING:
    import warp

DESC = xsem.MipmapDesc(extent=(WIDTH, HEIGHT, 0), format="uint8", channels=4)
TIMEOUT_S = 30.0


def mirror_kernel() -> warp.Kernel:
    """Return the kernel that mirrors an image. Warp samples integers as fractions of 1."""
    import warp

    @warp.kernel
    def mirror(texture: warp.Texture2D, out: warp.array2d[warp.vec4f]) -> None:
        y, x = warp.tid()
        place = warp.vec2f(float(out.shape[1] - 1 - x) + 0.5, float(y) + 0.5)
        out[y, x] = warp.texture_sample(texture, place, dtype=warp.vec4f)

    return mirror


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=30)
    asked = parser.parse_args()
    try:
        import warp
    except ImportError:
        print("warp_texture: Warp is missing: pip install warp-lang", file=sys.stderr)
        return 2

    wrong = 0
    with xsem.open_device("cuda:0") as cuda, cuda.companion_exporter() as vulkan:
        drawn = vulkan.create_timeline(label="drawn")
        shared = vulkan.create_memory("OPAQUE_FD", 4 << 20)
        with drawn.export(for_device=cuda) as drawn_desc, shared.export(for_device=cuda) as memory_desc:
            seen, memory = cuda.import_semaphore(drawn_desc), cuda.import_memory(memory_desc)
        theirs, image = shared.map_mipmapped_array(DESC).level(0), memory.map_mipmapped_array(DESC)
        drawing, draws = vulkan.host_buffer(4 * WIDTH * HEIGHT), vulkan.create_command_list()

        texture = warp.Texture2D(
            cuda_array=image.level(0).native_handle, device="cuda:0", normalized_coords=False,
            filter_mode=warp.TextureFilterMode.CLOSEST, address_mode=warp.TextureAddressMode.BORDER)
        mirror, mirrored = mirror_kernel(), warp.empty((HEIGHT, WIDTH), dtype=warp.vec4f, device="cuda:0")
        # Launch the kernel once before any wait is pending: the first launch compiles and loads it.
        warp.launch(mirror, dim=mirrored.shape, inputs=[texture], outputs=[mirrored], device="cuda:0")
        commands = cuda.command_list(warp.get_stream("cuda:0"))
        for frame in range(asked.frames):
            drawing.numpy()[:] = draw(frame).reshape(-1)
            draws.append_copy(theirs, drawing)
            draws.append_signal(drawn, 2 * frame + 1, release=[shared])
            commands.append_wait(seen, 2 * frame + 1, acquire=[memory])
            warp.launch(mirror, dim=mirrored.shape, inputs=[texture], outputs=[mirrored], device="cuda:0")
            commands.append_signal(seen, 2 * frame + 2, release=[memory])
            draws.append_wait(drawn, 2 * frame + 2, acquire=[shared])   # Vulkan draws the next frame after the kernel
            commands.synchronize(timeout_s=TIMEOUT_S)
            found = np.rint(255 * mirrored.numpy()).astype(np.uint8)
            wrong += not (found == draw(frame)[:, ::-1]).all()
            draws.synchronize(timeout_s=TIMEOUT_S)
        del texture   # before the image that it samples
    print(f"warp_texture: {asked.frames} frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, RuntimeError, OSError) as error:
        sys.exit(f"warp_texture: {error}")
