"""Make files from ``records/*/conformance-*.json``: ``python tools/report_files.py [--check]``.

The files are the Markdown of each report, and the tables in docs/reference/device-results.md between two comments.
With ``--check`` nothing is written, and the exit status is 1 if a file is not up to date.
"""

# The matrix describes the code of this tree. The first change of a backend after its report turns the backend's cells
# to ``stale``, and the check fails until the page shows this. A new report makes the cells valid again. The digest in a
# report decides, so the tool needs no history and no clone. The page is not part of the digest.

from __future__ import annotations

import json
import sys
from pathlib import Path

import contracts

ROOT = Path(__file__).resolve().parents[1]
# Import the suite and the backends of this tree, not those of another installation.
sys.path[:0] = [str(ROOT / "conformance"), str(ROOT)]

from xsem.cli.files import write_file  # noqa: E402
from xsem_conformance.backend_code import digest  # noqa: E402
from xsem_conformance.report.build import check  # noqa: E402
from xsem_conformance.report.markdown import markdown  # noqa: E402
from xsem_conformance.report.matrix import STALE, matrix  # noqa: E402

BEGIN = "<!-- matrix: python tools/report_files.py -->\n"
END = "<!-- end of the matrix -->\n"
REPORTS = "records/*/conformance-*.json"
PAGE = Path("docs/reference/device-results.md")
"""The page with the matrix."""
NO_HARDWARE = frozenset({"host"})
"""Backends without hardware. Everyone can run the suite on them."""
RULE = (f"A cell reads `{STALE}` if a file of the backend has changed since the report. The report holds the\n"
        "SHA-256 of these files.")


def made(root: Path) -> dict[Path, str]:
    """Return the contents of every file that is made from the reports."""
    reports = {}
    for path in sorted(root.glob(REPORTS)):
        try:
            reports[path] = json.loads(path.read_text(encoding="utf-8"))
            check(reports[path])
        except ValueError as error:
            raise ValueError(f"{path.relative_to(root).as_posix()}: {error}") from error
    files: dict[Path, str] = {}
    for path, report in reports.items():
        files[path.with_suffix(".md")] = markdown(report)
    packages, backends = contracts.packages(root), contracts.backends(root)
    code = {name: digest(packages[name]) for name in backends}
    up = "/".join(".." for _ in PAGE.parent.parts)
    table = matrix({f"{up}/{path.with_suffix('.md').relative_to(root).as_posix()}": report
                    for path, report in reports.items()}, code)
    reported = {report["device"]["backend"] for report in reports.values()}
    missing = sorted({packages[name].parent.name for name in backends} - reported - NO_HARDWARE)
    rest = f" Backends without a report from hardware: {', '.join(f'`{name}`' for name in missing)}." if missing else ""
    page = root / PAGE
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(END) < text.index(BEGIN):
        raise ValueError(f"{PAGE.as_posix()} must contain {BEGIN.strip()} and then {END.strip()}, once each and on a "
                         "line each")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    files[page] = f"{before}{BEGIN}\n{RULE}{rest}\n\n{table}\n{END}{after}"
    return files


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Write or check the files. Return the exit status."""
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    wrong = {path: text for path, text in made(root).items()
             if not path.exists() or path.read_text(encoding="utf-8") != text}
    for path, text in wrong.items():
        if not arguments:
            write_file(path, text.encode())
        print(f"{'written' if not arguments else 'not what the reports make'}: {path.relative_to(root).as_posix()}")
    if wrong and arguments:
        print("run `python tools/report_files.py` and commit its changes. `stale` means that the code has changed "
              "since the report: commit it, and make a new report on the hardware later")
    return 1 if wrong and arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
