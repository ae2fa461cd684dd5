"""The rules of tests/conftest.py hold: tests leave nothing behind, and CI reports every unlisted skip."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def run(folder: Path, *tests: str, options: tuple[str, ...] = (), ci: str | None = None) -> tuple[int, str]:
    """Run one file per test under a copy of tests/conftest.py. Return the status and the output."""
    if not (folder / "conftest.py").exists():
        text = (ROOT / "tests" / "conftest.py").read_text()
        (folder / "conftest.py").write_text(text.replace("_GRACE_S = 20.0", "_GRACE_S = 0.2"))
    for number, test in enumerate(tests):
        (folder / f"test_planted_{number}.py").write_text(f"import os, subprocess, threading, pytest\n{test}\n")
    environment = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST_")}
    environment |= {"COLUMNS": "300", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | ({"CI": ci} if ci else {})
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options], cwd=folder,
                          env=environment, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=50, check=False)
    return done.returncode, done.stdout


@linux
@pytest.mark.parametrize(("test", "said"), [
    ("def test(): os.pipe()", "pipe:["),
    ("def test(): os.dup2(1, 0)", "the test left behind"),
    ("@pytest.fixture(scope='module')\ndef pipe():\n    yield os.pipe()\ndef test(pipe): os.close(pipe[0])",
     "the test closed what it had not opened"),
    ("def test(): threading.Thread(target=threading.Event().wait, args=(9,), name='x', daemon=True).start()", "x"),
    ("kept = []\ndef test(): kept.append(subprocess.Popen(['sleep', '3']))", "sleep 3"),
    ("kept = []\ndef test(): kept.append(subprocess.Popen(['true']))", "ended, not waited for"),
])
def test_leftovers_of_a_test_fail_it(tmp_path: Path, test: str, said: str) -> None:
    code, printed = run(tmp_path, test)
    assert code == 1
    assert said in printed


def test_test_that_leaves_nothing_passes(tmp_path: Path) -> None:
    code, printed = run(tmp_path, """
def test(capfd, tmp_path):
    threading.Thread(target=print).start()
    subprocess.run(['true'])
    (tmp_path / 'x').write_text('x')
""")
    assert code == 0, printed


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_tests_can_press_ctrl_c_when_started_with_it_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)   # the processes started below inherit it
    try:
        code, printed = run(tmp_path, """
def test():
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), 2)
        threading.Event().wait(9)
    assert subprocess.run(["sh", "-c", "kill -INT $$"]).returncode == -2
""")
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == 0, printed


SKIPS = (
    "def test(): pytest.skip('no card')",
    "@pytest.mark.skip(reason='no card')\ndef test(): pass",
    "@pytest.mark.skipif(True, reason='no card')\ndef test(): pass",
    "pytest.importorskip('there_is_no_such_module', reason='no card')\ndef test(): pass",
    "pytest.skip('no card', allow_module_level=True)",
    "@pytest.fixture\ndef card(): pytest.skip('no card')\ndef test(card): pass",
)


@pytest.mark.variants
@pytest.mark.parametrize(("options", "ci", "refused"), [
    (("--no-skips",), None, True), ((), "true", True), ((), None, False)])
def test_skip_fails_only_in_ci(tmp_path: Path, options: tuple[str, ...], ci: str | None, refused: bool) -> None:
    code, printed = run(tmp_path, *(f"{test}\ndef test_other(): pass\n" for test in SKIPS),
                        options=("--continue-on-collection-errors", *options), ci=ci)
    assert (code != 0) is refused, printed
    said = r"^(?:FAILED|ERROR) test_planted_(\d)\.py\S* - .*skipped in CI, and not in ALLOWED_SKIPS .*: .*no card"
    failed = re.findall(said, printed, re.MULTILINE)
    assert sorted(failed) == [str(number) for number in range(len(SKIPS)) if refused], printed


def test_first_of_the_variants_is_not_slow(tmp_path: Path) -> None:
    test = """
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
@pytest.mark.variants
@pytest.mark.parametrize("x", "abc")
def test(x): pass
@pytest.mark.parametrize("x", "de")
def test_other(x): pass
"""
    for arguments, ran in ((("-m", "not slow"), "3 passed, 2 deselected"), ((), "5 passed")):
        code, printed = run(tmp_path, test, options=arguments)
        assert code == 0, printed
        assert ran in printed


def test_listed_skip_and_expected_failure_pass_in_ci(tmp_path: Path) -> None:
    test = "def test(): pytest.skip('no card')\n@pytest.mark.xfail(strict=True)\ndef test_x(): assert 0"
    assert run(tmp_path, test, ci="true")[0] == 1
    path = tmp_path / "conftest.py"
    listed = path.read_text().replace("...] = (", "...] = (('test_planted_0.py::test', 'no card'),", 1)
    assert listed != path.read_text()
    path.write_text(listed)
    code, printed = run(tmp_path, test, options=("--no-skips",))
    assert code == 0, printed
