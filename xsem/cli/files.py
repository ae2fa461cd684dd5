"""Files that a command writes: whole or not at all, and never through a symbolic link."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from xsem.errors import XsemError

__all__ = ["CannotWriteError", "check_writable", "write_file"]


class CannotWriteError(XsemError):
    """A file that a command was asked for cannot be written; the message names it and says why."""


def check_writable(path: Path, *, make_folders: bool = False) -> None:
    """Find out before the work whether `write_file` can write there, by a file that is removed again.

    Raises
    ------
    CannotWriteError
        ``cannot_write``.
    """
    with _told(path):
        _refuse_others(path)
        folder = path.parent
        while make_folders and not folder.exists() and folder != folder.parent:
            folder = folder.parent
        # Asking for permissions is not enough: /proc grants them and takes no file.
        number, name = tempfile.mkstemp(prefix=".xsem-", dir=folder)
        os.close(number)
        os.unlink(name)


def write_file(path: Path, data: bytes, *, make_folders: bool = False) -> None:
    """Write a new file beside `path` and rename it to `path`.

    A symbolic link of that name is replaced, and its target stays as it is: in a folder that others can write to, a
    link under an expected name would choose which of the user's files is overwritten. A failure, also a full disk,
    leaves what was there before. An existing file's permissions are kept.

    Parameters
    ----------
    path : Path
        What is written.
    data : bytes
        All of it.
    make_folders : bool
        Make the folders that `path` needs.

    Raises
    ------
    CannotWriteError
        ``cannot_write``.
    """
    with _told(path):
        _refuse_others(path)
        if make_folders:
            path.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() and not path.is_symlink() else None
        fresh = path.with_name(f".xsem-{secrets.token_hex(8)}")
        try:
            with open(fresh, "xb") as file:
                file.write(data)
            if mode is not None:
                fresh.chmod(mode)
            os.replace(fresh, path)
        except BaseException:
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise


def _refuse_others(path: Path) -> None:
    """Refuse what is no ordinary file: a rename would replace a folder's link, or a device by a file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    # /dev/stdout leads to an ordinary file where the output is redirected to one.
    if (path.exists() and not path.is_file()) or os.path.realpath(path.parent) == "/dev":
        raise OSError(errno.EINVAL, "not an ordinary file")


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWriteError(f"{path} cannot be written: {error.strerror or error}", reason="cannot_write") from error
