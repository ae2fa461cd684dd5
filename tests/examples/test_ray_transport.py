"""examples/ray_transport.py: two actors of a local Ray cluster, with Ray from its wheel."""

from __future__ import annotations

import faulthandler
import importlib.util

import pytest
from support.paths import ROOT
from support.ray_cluster import on_one_node


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_tensors_go_from_actor_to_actor() -> None:
    for each in ("ray", "torch"):
        if importlib.util.find_spec(each) is None:
            pytest.skip(f"{each} is not installed: pip install 'xsem[fleet]' torch")
    faulthandler.cancel_dump_traceback_later()   # of pytest: on a busy machine a cluster takes longer
    status, out = on_one_node(ROOT / "examples" / "ray_transport.py", "--elements", "4096")
    assert status == 0, out
    assert out.splitlines()[-1] == "3 tensors of 4096 elements, 0 wrong"
