"""Files that a command writes: atomic, in place of links, and refused with a message."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from xsem.cli.files import CannotWriteError, check_writable, write_file

TWO_WAYS = pytest.mark.parametrize("act", [check_writable, lambda path: write_file(path, b"new")],
                                   ids=["check_writable", "write_file"])


def test_new_file_is_written_and_old_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    for data in (b"one", b"2"):
        check_writable(path)
        write_file(path, data)
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["out.json"]   # no temporary file is left


def test_permissions_are_the_default_or_the_old_ones(tmp_path: Path) -> None:
    usual, path = tmp_path / "usual", tmp_path / "out.json"
    usual.touch()
    write_file(path, b"one")
    assert path.stat().st_mode == usual.stat().st_mode
    path.chmod(0o600)
    write_file(path, b"two")
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("there", [True, False], ids=["target", "dangling"])
def test_link_is_replaced_and_its_target_is_unchanged(tmp_path: Path, there: bool) -> None:
    target, link = tmp_path / "target", tmp_path / "out.json"
    if there:
        target.write_bytes(b"the user's own")
    link.symlink_to(target)
    check_writable(link)
    write_file(link, b"new")
    assert not link.is_symlink()
    assert link.read_bytes() == b"new"
    assert (target.read_bytes() if there else target.exists()) == (b"the user's own" if there else False)


def test_folders_are_made_when_requested(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "out.png"
    with pytest.raises(CannotWriteError, match="No such file or directory"):
        check_writable(path)
    check_writable(path, make_folders=True)
    assert os.listdir(tmp_path) == []   # folders are made only when a file is written
    write_file(path, b"new", make_folders=True)
    assert path.read_bytes() == b"new"


@TWO_WAYS
@pytest.mark.parametrize(("name", "said"), [
    (".", "Is a directory"), ("gone/out", "No such file or directory"), ("file/out", "Not a directory"),
    ("x" * 300, "File name too long"), ("fifo", "not an ordinary file"), ("link-to-fifo", "not an ordinary file"),
    ("link-to-folder", "Is a directory"), ("/dev/full", "not an ordinary file"),
    ("/dev/stdout", "not an ordinary file"), ("/dev/new", "not an ordinary file"), ("/proc/new", "No such file"),
])
def test_unwritable_path_is_refused_with_a_message(tmp_path: Path, act: object, name: str, said: str) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "link-to-fifo").symlink_to("fifo")
    (tmp_path / "link-to-folder").symlink_to(".")
    before = sorted(os.listdir(tmp_path))
    assert callable(act)
    with pytest.raises(CannotWriteError, match=said) as raised:
        act(tmp_path / name)
    assert raised.value.reason == "cannot_write"
    assert str(tmp_path / name) in raised.value.message
    assert sorted(os.listdir(tmp_path)) == before
    assert os.path.lexists("/dev/stdout")


def test_full_disk_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    code = """if True:
        import resource, sys
        from pathlib import Path
        from xsem.cli.files import CannotWriteError, write_file
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        try:
            write_file(Path(sys.argv[1]), bytes(1 << 20))
        except CannotWriteError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True,
                          timeout=50, stdin=subprocess.DEVNULL)
    assert done.stdout == f"{path} cannot be written: {os.strerror(errno.EFBIG)}\n"
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.json"]


def test_interrupt_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "out.json"
    path.write_bytes(b"old")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.json"]
