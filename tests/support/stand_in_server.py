"""A process that has imported pytest, NumPy and xsem, and forks for each group of tests that stand_in.py asks for.

    python -m support.stand_in_server SOCKET PID       # returns when it listens; it ends with the process PID
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys

import numpy as np  # noqa: F401
import pytest

import xsem  # noqa: F401


def main(path: str, pid: int) -> int:
    owner = os.pidfd_open(pid)
    server = socket.socket(socket.AF_UNIX)
    server.bind(path)
    server.listen()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)   # the kernel reaps the groups
    while owner not in select.select([server.fileno(), owner], [], [])[0]:
        connection, _ = server.accept()
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            server.close()
            os.close(owner)
            return run(connection)
        connection.close()
    return 0


def run(connection: socket.socket) -> int:
    """Run pytest in this process. The connection ends with it."""
    with connection.makefile() as reader:
        environment, arguments, output = json.loads(reader.readline())
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    connection.sendall(f"{os.getpid()}\n".encode())
    return int(pytest.main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
