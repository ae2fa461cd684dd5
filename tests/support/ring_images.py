"""A ring of a renderer's images between two devices of one GPU, as a program.

    python -m support.ring_images vulkan:0 cuda:0
"""

from __future__ import annotations

import sys
from typing import Final

import numpy as np

import xsem

FRAMES: Final = 20
SLOTS: Final = 3
WIDTH, HEIGHT = 64, 48
DESC: Final = xsem.MipmapDesc(extent=(WIDTH, HEIGHT, 0), format="uint8", channels=4)


def not_an_array(frame: xsem.Frame) -> bool:
    """Return whether the frame refuses to be an array, and says why."""
    try:
        np.asarray(frame)
    except xsem.UnsupportedError as error:
        return error.reason == "no_array"
    return False


def main(draws_on: str, reads_on: str, allocates_on: str = "") -> None:
    """Check the frames of both policies. The renderer's device allocates the images, or the third one."""
    with (xsem.open_device(draws_on) as first, xsem.open_device(reads_on) as second,
          xsem.open_device(allocates_on or draws_on) as allocator):
        for policy in ("fifo", "mailbox"):
            images = [allocator.create_memory("OPAQUE_FD", 1 << 20) for _ in range(SLOTS)]
            descs = [each.export(for_device=first) for each in images]
            with xsem.FrameRing.create(first, shape=DESC, memory=descs, policy=policy) as ring:
                for desc in descs:
                    desc.close()
                with ring.export() as message:
                    reader = xsem.FrameRing.open(second, message)
                draws, reads = first.create_command_list(), second.create_command_list()
                drawing, pixels = first.host_buffer(4 * WIDTH * HEIGHT), second.host_buffer(4 * WIDTH * HEIGHT)
                for number in range(1, FRAMES + 1):
                    drawing.numpy()[:] = number
                    drawing.numpy()[:number] = 255
                    with ring.write(draws) as frame:
                        assert frame.number == number
                        assert not_an_array(frame)
                        draws.append_copy(frame.image.level(0), drawing)
                    draws.synchronize()
                    with reader.read(reads) as frame:
                        reads.append_copy(pixels, frame.image.level(0))
                    reads.synchronize()
                    assert (pixels.numpy() == drawing.numpy()).all(), (policy, number)
                assert np.unique(pixels.numpy()).tolist() == [FRAMES, 255]
                reader.close()
                for each in (drawing, pixels, draws, reads):
                    each.release()
            for image in images:
                image.release()


if __name__ == "__main__":
    main(*sys.argv[1:])
