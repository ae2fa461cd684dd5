"""Negate the frames of a C program: it creates the semaphore and the memory, without Python and without xsem.

The program is exporter.c. A C compiler builds it first.

    python examples/c_exporter/receiver.py --frames 100
"""

from __future__ import annotations

import argparse
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import xsem
from xsem import ipc

HERE = Path(__file__).resolve().parent
INCLUDE = (HERE.parent / "c", HERE.parents[1] / "tests" / "support")
TIMEOUT_S = 30.0


def negate(connection: socket.socket) -> None:
    """Negate all frames of the exporter at the other end of a connection."""
    with xsem.open_device("host") as device:
        with ipc.receive(connection, timeout_s=TIMEOUT_S) as message:
            pixels, frames = struct.unpack("<II", message.payload)
            timeline = device.import_semaphore(message.semaphores[0], label="frames")
            memory = device.import_memory(message.memories[0])
        image = memory.map_buffer(shape=(pixels,), dtype="float32").numpy()
        commands = device.create_command_list()
        for frame in range(frames):
            commands.append_wait(timeline, 2 * frame + 1)
            commands.append_work(lambda: np.negative(image, out=image))   # on a GPU: enqueue a kernel
            commands.append_signal(timeline, 2 * frame + 2)
        commands.synchronize(timeout_s=TIMEOUT_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=100)
    asked = parser.parse_args()
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        print("c_exporter: a C compiler is missing: install gcc or clang", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        program, path = Path(folder) / "exporter", Path(folder) / "frames.sock"
        subprocess.run([compiler, "-std=c11", "-O2", *(f"-I{each}" for each in INCLUDE), "-o", program,
                        HERE / "exporter.c"], check=True)
        listener.bind(str(path))
        listener.listen(1)
        listener.settimeout(TIMEOUT_S)
        with subprocess.Popen([program, path, str(asked.frames)]) as exporter:
            try:
                connection, _ = listener.accept()
                with connection:
                    negate(connection)
                status = exporter.wait(TIMEOUT_S)
            finally:
                exporter.kill()   # no effect on a process that has ended
    print(f"c_exporter: {asked.frames} frames, exporter's status {status}")
    return 1 if status else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (xsem.XsemError, OSError, subprocess.SubprocessError) as error:
        sys.exit(f"c_exporter: {error}")
