"""Child processes import the same xsem as their parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from xsem.cli.interpreter import python


@pytest.mark.parametrize(("path", "wanted"), [
    ("", []), (".", []), ("HERE", []), ("/usr/lib", ["-P"]), (None, ["-P"]),
])
def test_child_searches_the_current_folder_when_its_parent_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, path: str | None, wanted: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [] if path is None else [path.replace("HERE", str(tmp_path))])
    assert python() == [sys.executable, *wanted]


def test_child_does_not_import_the_clone_in_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    (tmp_path / "xsem").mkdir()
    (tmp_path / "xsem" / "__init__.py").write_text("raise SystemExit('a module of the current folder')\n")
    monkeypatch.chdir(tmp_path)
    done = subprocess.run([*python(), "-c", "import xsem; print(xsem.__file__)"], check=True, timeout=60,
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert not done.stdout.startswith(str(tmp_path))
