"""tests/drivers/conforms: which output of a conformance run CI accepts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

TABLE = """\
        cases  met  not met  not declared
MUST      610  199        0           411
total     647  209        0           438
"""
SAID = "conformance of host:0 with host: "


def accepts(output: str, least: int = 209, **environment: str) -> bool:
    program = Path(__file__).with_name("conforms")
    return subprocess.run([program, str(least)], input=output, text=True, capture_output=True, timeout=50,
                          check=False, env={**os.environ, **environment}).returncode == 0


@pytest.mark.parametrize("more", ["", "; 1 recommendation not met", "; 2 recommendations not met (3 cases)",
                                  "; 1 recommendation not met; 2 options used wrongly (4 cases)"])
def test_device_that_conforms_is_accepted(more: str) -> None:
    assert accepts(f"{SAID}conforms to core{more}\n{TABLE}")


@pytest.mark.parametrize("verdict", [
    "does not conform to core; 1 requirement not met", "conforms to core; 1 requirement waived",
    "conforms to core; 3 cases not run", "meets the requirements that were tried; a part of core",
    "conformance to core not decided; 2 requirements could not be tried (5 cases)",
    "conforms to core; 1 problem outside the cases",
])
def test_other_verdict_is_refused(verdict: str) -> None:
    assert not accepts(f"{SAID}{verdict}\n{TABLE}")


def test_waivers_are_accepted_only_where_they_may_be() -> None:
    waived = f"{SAID}conforms to memory; 4 requirements waived (5 cases); 2 recommendations not met\n{TABLE}"
    assert accepts(waived, MAY_WAIVE="yes")
    assert not accepts(waived)
    assert not accepts(f"{SAID}does not conform to core; 1 requirement waived\n{TABLE}", MAY_WAIVE="yes")


def test_fewer_cases_or_no_table_are_refused() -> None:
    assert not accepts(f"{SAID}conforms to core\n{TABLE}", 210)
    assert not accepts(f"{SAID}conforms to core\n")
    assert not accepts("")
