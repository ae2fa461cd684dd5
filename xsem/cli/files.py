"""Output files of commands: written completely or not at all, and never through a symbolic link."""

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
    """A command cannot write its output file; the message names the file and the cause."""


def check_writable(path: Path, *, make_folders: bool = False) -> None:
    """Check before the work that `write_file` can write to `path`: create a temporary file and remove it."""
    with _told(path):
        _refuse_others(path)
        folder = _first_existing(path.parent) if make_folders else path.parent
        # A check of permissions is not enough: /proc grants them and refuses new files.
        number, name = tempfile.mkstemp(prefix=".xsem-", dir=folder)
        os.close(number)
        os.unlink(name)


def _first_existing(folder: Path) -> Path:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder


def write_file(path: Path, data: bytes, *, make_folders: bool = False) -> None:
    """Write a new file beside `path` and rename it to `path`. An existing file's permissions are kept."""
    # A symbolic link at `path` is replaced, and its target does not change. Otherwise another user with write access to
    # the folder could put a link there and choose which of the user's files is overwritten. After a failure, also on a
    # full disk, the old file is unchanged.
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
    """Refuse folders, devices and links to them: the rename would replace the link or the device by a file."""
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    # If the output is redirected to an ordinary file, /dev/stdout resolves to that file. Hence the check of the folder.
    if (path.exists() and not path.is_file()) or os.path.realpath(path.parent) == "/dev":
        raise OSError(errno.EINVAL, "not an ordinary file")


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWriteError(f"{path} cannot be written: {error.strerror or error}", reason="cannot_write") from error
