"""The type checks of user code can fail: each line that must be refused is reported without its ignore."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import lint
import pytest
from support.paths import ROOT

REFUSED = ROOT / "tests" / "typing" / "refused.py"


@pytest.fixture
def bare(tmp_path: Path) -> tuple[Path, set[int]]:
    """Write the refused lines without their ignores. Return their numbers."""
    lines = REFUSED.read_text().splitlines(keepends=True)
    marked = {number for number, line in enumerate(lines, 1) if "# type: ignore" in line}
    path = tmp_path / "bare.py"
    path.write_text("".join(re.sub(r"# type: ignore\[[a-z-]+\]", "", line) for line in lines))
    return path, marked


def reported(command: list[str]) -> set[int]:
    _, passed, said, _ = lint.run("", command, lint.STUBS)
    assert not passed
    return {int(number) for number in re.findall(r"bare\.py:(\d+)(?::\d+)?(?: -)?:? error", said)}


@pytest.mark.slow
def test_mypy_refuses_each_line(bare: tuple[Path, set[int]]) -> None:
    path, marked = bare
    assert len(marked) > 20
    assert reported(lint.scenarios_mypy(str(path))) == marked


@pytest.mark.slow
def test_pyright_refuses_each_line(bare: tuple[Path, set[int]]) -> None:
    path, marked = bare
    # pyright reads its configuration from the folder of the file.
    shutil.copy(ROOT / "pyproject.toml", path.parent)
    assert reported(lint.scenarios_pyright("--project", str(path.parent), str(path))) == marked


@pytest.mark.slow
def test_stubs_are_valid() -> None:
    """mypy shows no error of a file that it finds through MYPYPATH, so the stubs are its arguments here."""
    stubs = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests" / "typing" / "stubs").rglob("*.pyi"))
    assert len(stubs) > 5
    _, passed, said, _ = lint.run("", lint.scenarios_mypy(*stubs), lint.STUBS)
    assert passed, said


@pytest.mark.slow
@pytest.mark.parametrize("command", [lint.scenarios_mypy, lint.scenarios_pyright])
def test_needless_ignore_is_reported(tmp_path: Path, command: object) -> None:
    assert callable(command)
    path = tmp_path / "bare.py"
    path.write_text("import xsem\nprint(xsem.open_device('host'))  # type: ignore[call-arg]\n")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    more = ["--project", str(tmp_path)] if command is lint.scenarios_pyright else []
    assert reported(command(*more, str(path))) == {2}


def test_lint_fails_where_a_check_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                        capsys: pytest.CaptureFixture[str]) -> None:
    good: tuple[list[str], dict[str, str]] = (["true"], {})
    monkeypatch.setattr(lint, "checks", lambda: {"first": good, "second": (["sh", "-c", "echo found; exit 3"], {})})
    assert lint.main() == 1
    assert re.search(r"^ok +first.*\nFAILED +second.*\nfound$", capsys.readouterr().out, re.MULTILINE)
    monkeypatch.setattr(lint, "checks", lambda: {"first": good})
    assert lint.main() == 0


def test_lint_runs_every_tool_on_every_platform() -> None:
    commands = [" ".join([os.path.basename(command[0]), *command[1:]]) for command, _ in lint.checks().values()]
    for start in ("ruff check", "pyright", *(f"mypy --no-error-summary --platform={each}"
                                            for each in ("linux", "win32", "darwin"))):
        assert any(command.startswith(start) for command in commands), start
