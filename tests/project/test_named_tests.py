"""The documents name tests that exist."""

from __future__ import annotations

import re

from support.paths import ROOT, TESTS


def test_tests_of_the_level_zero_page_exist() -> None:
    page = (ROOT / "docs" / "levelzero.md").read_text()
    named = re.findall(r"`(test_\w+\.py)`: `(test_\w+)`", page)
    assert len(named) > 10
    for file, test in named:
        assert f"def {test}(" in (TESTS / "backends" / "levelzero" / file).read_text(), (file, test)
