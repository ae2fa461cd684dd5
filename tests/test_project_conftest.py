"""The rules of tests/conftest.py hold: nothing is left behind, and nothing is skipped unseen in CI."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def run(folder: Path, test: str, *options: str, ci: str | None = None) -> tuple[int, str]:
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "test_planted.py").write_text(f"import os, subprocess, threading, pytest\n{test}\n")
    conftest = folder / "conftest.py"
    conftest.write_text(conftest.read_text().replace("_GRACE_S = 5.0", "_GRACE_S = 0.2"))
    environment = {key: value for key, value in os.environ.items() if key != "CI"} | ({"CI": ci} if ci else {})
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
def test_what_a_test_leaves_behind_fails_it(tmp_path: Path, test: str, said: str) -> None:
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


@pytest.mark.parametrize("test", [
    "def test(): pytest.skip('no card')",
    "@pytest.mark.skip(reason='no card')\ndef test(): pass",
    "@pytest.mark.skipif(True, reason='no card')\ndef test(): pass",
    "pytest.importorskip('there_is_no_such_module', reason='no card')\ndef test(): pass",
    "pytest.skip('no card', allow_module_level=True)",
    "@pytest.fixture\ndef card(): pytest.skip('no card')\ndef test(card): pass",
])
def test_skip_fails_in_ci_alone(tmp_path: Path, test: str) -> None:
    code, printed = run(tmp_path, test + "\ndef test_other(): pass\n")
    assert code in (0, 5), printed
    for options, ci in ((["--no-skips"], None), ([], "true")):
        code, printed = run(tmp_path, test + "\ndef test_other(): pass\n", *options, ci=ci)
        assert code not in (0, 5)
        assert "not in ALLOWED_SKIPS" in printed
        assert "no card" in printed


def test_listed_skip_and_expected_failure_pass_in_ci(tmp_path: Path) -> None:
    test = "def test(): pytest.skip('no card')\n@pytest.mark.xfail(strict=True)\ndef test_x(): assert 0"
    assert run(tmp_path, test, ci="true")[0] == 1
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    path = tmp_path / "conftest.py"
    listed = path.read_text().replace("...] = (", "...] = (('test_planted.py::test', 'no card'),", 1)
    assert listed != path.read_text()
    path.write_text(listed)
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-skips"], cwd=tmp_path,
                          text=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=50, check=False)
    assert done.returncode == 0, done.stdout
