"""tools/report_files.py: the generated files match the committed reports, and a difference is reported."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import contracts
import pytest
import report_files
from report_files import BEGIN, END, PAGE
from support.paths import ROOT

from xsem_conformance.backend_code import digest


@pytest.fixture(scope="module")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files of the tool, up to date. A few cases of each report are enough here, and much faster to check."""
    root = tmp_path_factory.mktemp("current")
    for path in contracts.packages(ROOT).values():
        if path.is_relative_to(ROOT / "backends"):
            shutil.copytree(path, root / path.relative_to(ROOT), ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.glob(report_files.REPORTS):
        report = json.loads(path.read_text())
        report["cases"] = report["cases"][:20]
        copied = root / path.relative_to(ROOT)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(json.dumps(report))
    (root / PAGE).parent.mkdir(parents=True)
    for name in ("pyproject.toml", PAGE):
        shutil.copy(ROOT / name, root / name)
    assert report_files.main([], root) == 0
    return root


@pytest.fixture
def copy(current: Path, tmp_path: Path) -> Path:
    """Return a copy of the tree for each test."""
    return shutil.copytree(current, tmp_path, dirs_exist_ok=True)


def table(root: Path) -> list[str]:
    text = (root / PAGE).read_text().partition(BEGIN)[2].partition(END)[0]
    return [line for line in text.splitlines() if line.startswith("| ")]


def age(root: Path) -> Path:
    """Change the backend of the first row."""
    backend = table(root)[2].removeprefix("| ").partition(":")[0]
    (module,) = (root / "backends" / backend).glob("xsem_*/__init__.py")
    module.write_text(module.read_text() + "# more\n")
    return module


def refresh(root: Path) -> None:
    """Make every report refer to the present code."""
    for path in root.glob(report_files.REPORTS):
        report = json.loads(path.read_text())
        name = report["device"]["backend"]
        package = f"xsem_{name}"
        sha256 = digest(root / "backends" / name / package)
        report["code"] = {"package": package, "sha256": sha256}
        path.write_text(json.dumps(report, indent=1) + "\n")


def test_written_table_is_current_and_keeps_the_text_around_it(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = copy / PAGE
    assert len(table(copy)) > 4
    around = page.read_text().partition(BEGIN)[0], page.read_text().partition(END)[2]
    assert all(around)
    page.write_text(f"{around[0]}{BEGIN}older{END}{around[1]}")
    capsys.readouterr()
    assert report_files.main(["--check"], copy) == 1
    said = capsys.readouterr().out
    assert f"not what the reports make: {PAGE.as_posix()}\n" in said
    assert "run `python tools/report_files.py`" in said
    assert report_files.main([], copy) == 0
    assert report_files.main(["--check"], copy) == 0
    assert (page.read_text().partition(BEGIN)[0], page.read_text().partition(END)[2]) == around
    assert (page.read_text().count(BEGIN), page.read_text().count(END)) == (1, 1)


def test_backend_that_changes_makes_its_cells_stale_once(copy: Path) -> None:
    refresh(copy)
    assert report_files.main([], copy) == 0
    fresh = table(copy)
    assert not [line for line in fresh if "stale" in line]
    module = age(copy)
    assert report_files.main(["--check"], copy) == 1
    assert report_files.main([], copy) == 0
    stale = [line for line in table(copy) if "| stale | stale | stale |" in line]
    assert 0 < len(stale) < len(fresh) - 2          # other backends are not stale
    assert report_files.RULE in (copy / PAGE).read_text()
    module.write_text(module.read_text() + "# still more\n")
    assert report_files.main(["--check"], copy) == 0     # the next change needs no update
    refresh(copy)
    assert report_files.main([], copy) == 0
    assert table(copy) == fresh


def test_facade_that_changes_makes_nothing_stale(copy: Path) -> None:
    (copy / "xsem" / "spi").mkdir(parents=True)
    (copy / "xsem" / "spi" / "device.py").write_text("# other")
    assert report_files.main(["--check"], copy) == 0


def test_backend_without_a_report_is_named(copy: Path) -> None:
    for path in copy.glob("records/*/conformance-cuda*"):
        path.unlink()
    assert report_files.main([], copy) == 0
    text = (copy / PAGE).read_text()
    said = text.partition(" Backends without a report from hardware: ")[2].partition(".\n")[0]
    assert "`cuda`" in said
    assert "`host`" not in said
    assert not [line for line in table(copy) if line.startswith("| cuda")]


def test_page_that_differs_from_its_report_is_detected(copy: Path) -> None:
    path = min(copy.glob("records/*/conformance-*.md"))
    right = path.read_text()
    path.write_text(right.replace("H200", "H100"))
    assert report_files.main(["--check"], copy) == 1
    path.unlink()
    assert report_files.main(["--check"], copy) == 1
    assert report_files.main([], copy) == 0
    assert path.read_text() == right


def test_check_writes_nothing(copy: Path) -> None:
    age(copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    report_files.main(["--check"], copy)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


@pytest.mark.variants
@pytest.mark.parametrize("spoil", [
    lambda text: text.replace(BEGIN, ""), lambda text: text.replace(END, ""), lambda text: text * 2,
    lambda text: END.join(part.replace(END, BEGIN) for part in text.split(BEGIN)),
], ids=["no begin", "no end", "twice", "the wrong way round"])
def test_page_without_markers_for_the_matrix_is_refused(copy: Path, spoil: object) -> None:
    assert callable(spoil)
    page = copy / PAGE
    page.write_text(spoil(page.read_text()))
    with pytest.raises(ValueError, match=r"device-results\.md must contain <!-- matrix"):
        report_files.main([], copy)


def test_file_that_is_not_a_report_is_refused(copy: Path) -> None:
    min(copy.glob(report_files.REPORTS)).with_name("conformance-other.json").write_text("{}")
    with pytest.raises(ValueError, match=r"records/\S+\.json: not a report"):
        report_files.main([], copy)
