"""A command of `xsem`, called in this process."""

from __future__ import annotations

import contextlib
import io
from dataclasses import dataclass

from xsem.cli.app import run

__all__ = ["Ended", "called"]


@dataclass(frozen=True)
class Ended:
    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        return self.stdout + self.stderr


def called(*arguments: object) -> Ended:
    """Call `xsem` with these arguments."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = run([str(each) for each in arguments])
    return Ended(status, out.getvalue(), err.getvalue())
