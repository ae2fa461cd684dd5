"""A program on a local Ray cluster: ``python -m support.ray_cluster NODES PROGRAM [ARGUMENT …]``.

`NODES` is JSON: the environment of each node by its name. The program gets ``--address``. Each line of the input is the
name of a node, which dies. The exit status is that of the program.
"""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import json
import socket
import struct
import subprocess
import sys
import threading
from typing import Any

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1


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
