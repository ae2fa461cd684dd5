"""A program on a local Ray cluster: ``python -m support.ray_cluster NODES PROGRAM [ARGUMENT …]``.

`NODES` is JSON: the environment of each node by its name. The program gets ``--address``. Each line of the input is the
name of a node, which dies. The exit status is that of the program.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support.paths import ROOT

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1


# ---- for the tests that start it
@contextlib.contextmanager
def environment_of_ray() -> Iterator[dict[str, str]]:
    """Yield the environment of a cluster with a folder of its own, which is removed at the end of the block."""
    # Ray puts sockets into this folder, so its path is short.
    with tempfile.TemporaryDirectory(prefix="xsem-ray-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield os.environ | {"RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(ROOT / "tests")}


@contextlib.contextmanager
def running(command: Sequence[str | Path], environment: dict[str, str]) -> Iterator[Any]:
    """Start a program, and end it with its children at the end of the block."""
    process = subprocess.Popen(list(map(str, command)), env=environment, text=True, start_new_session=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def on_one_node(*program: str | Path) -> tuple[int, str]:
    """Run a program on a cluster of one node. Return its exit status and its output."""
    with environment_of_ray() as environment, running(
            [sys.executable, "-m", "support.ray_cluster", json.dumps({"one": {}}), *program], environment) as cluster:
        out, _ = cluster.communicate(timeout=400)
    return cluster.returncode, out


# ---- the cluster
def use_own_network() -> None:
    """Leave the network of the machine: Ray listens on the machine's own address, and here on 127.0.0.1."""
    libc = ctypes.CDLL(None)
    if libc.unshare(_NEW_NETWORK) and libc.unshare(_NEW_USER | _NEW_NETWORK):
        return   # not permitted here
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = fcntl.ioctl(any_socket, _GET_FLAGS, struct.pack("16sh22x", b"lo", 0))
        flags = struct.unpack("16sh22x", asked)[1] | _UP
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh22x", b"lo", flags))


def main() -> int:
    """Run the program, and return its exit status."""
    use_own_network()
    cluster: Any = importlib.import_module("ray.cluster_utils").Cluster()
    nodes = {name: cluster.add_node(num_cpus=1, node_name=name, object_store_memory=80 * 2**20, include_dashboard=False,
                                    env_vars=environment)
             for name, environment in json.loads(sys.argv[1]).items()}

    def kill() -> None:
        for line in sys.stdin:
            cluster.remove_node(nodes[line.strip()], allow_graceful=False)

    try:
        program = subprocess.Popen([sys.executable, *sys.argv[2:], "--address", cluster.address],
                                   stdin=subprocess.DEVNULL)
        threading.Thread(target=kill, daemon=True).start()
        return program.wait()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
