"""Run code in a forked child."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable
from typing import Any

CHILD_S = 30


def in_child(act: Callable[[], Any]) -> Any:
    """Run `act` in a forked child. Return its result, or the type and text of its exception."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(CHILD_S)
            os.close(read)
            try:
                result = act()
            except BaseException as error:
                result = ("raised", type(error).__name__, str(error))
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(result, pipe)
            status = 0
        finally:
            # No exit handler and no finalizer of the parent runs in the child.
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, "the child hung or died"
    return pickle.loads(data)
