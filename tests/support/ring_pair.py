"""A ring of frames between two devices of one process, as a program.

    python -m support.ring_pair cuda:0 host:0
"""

from __future__ import annotations

import sys
from typing import Final

import numpy as np

import xsem

FRAMES: Final = 60
BYTES: Final = 4096


def main(writes_on: str, reads_on: str) -> None:
    """Check the frames of both policies, whose work is appended to lists of the devices."""
    with xsem.open_device(writes_on) as first, xsem.open_device(reads_on) as second:
        for policy in ("fifo", "mailbox"):
            with xsem.FrameRing.create(first, shape=(BYTES,), dtype="uint8", policy=policy,
                                       memory_type="HOST_MEMORY_FD") as ring:
                with ring.export() as message:
                    reader = xsem.FrameRing.open(second, message)
                writes, reads = first.create_command_list(), second.create_command_list()
                copied, read = [], 0
                for number in range(1, FRAMES + 1):
                    with ring.write(writes) as frame:
                        writes.append_fill(frame.buffer, bytes([number]))
                    copied.append(second.host_buffer(BYTES))
                    with reader.read(reads) as frame:
                        reads.append_copy(copied[-1], frame.buffer)
                        read = frame.number
                    reads.synchronize()
                    assert (copied[-1].numpy() == np.uint8(read)).all()
                assert read == FRAMES or policy == "mailbox"
                reader.close()
                for each in (*copied, writes, reads):
                    each.release()


if __name__ == "__main__":
    main(*sys.argv[1:])
