"""`CaseContext`: its waits for the frees of released objects."""

from __future__ import annotations

import pytest

from xsem_conformance.case.context import CaseContext


def test_only_frees_that_are_expected_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    context = CaseContext("host:0", "host:0")
    left = ["semaphore 'one'", "semaphore 'two'"]
    with monkeypatch.context() as patch:
        patch.setattr(type(context.device), "releasing", lambda _: left.pop() if left else [])
        context.let_go(60)
        assert left == []
        left += ["memory 'never freed'"]
        context.expect_no_frees()
        context.let_go(60)
        context.let_go()
        assert left == ["memory 'never freed'"]
    context.close()
