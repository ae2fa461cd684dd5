"""Examples whose length is compared with that of other code know it, and so does docs/examples.md."""

from __future__ import annotations

import re

import pytest
from support.example_programs import EXAMPLES


@pytest.mark.parametrize(("name", "behind"), [   # the columns behind the length
    *((each, 1) for each in (
        "kv_blocks", "ring_viewer", "ring_encoder", "asyncio_server", "ray_pipeline", "ray_transport")),
    *((each, 0) for each in ("opengl_torch", "opengl_texture", "opengl_viewer")),
])
def test_example_tells_its_own_length(name: str, behind: int) -> None:
    text = (EXAMPLES / f"{name}.py").read_text()
    lines = len(text.splitlines())
    assert re.findall(r"This program has (\d+) lines", text) == [str(lines)]
    [row] = [row for row in (EXAMPLES.parent / "docs" / "examples.md").read_text().splitlines()
             if row.startswith(f"| [{name}.py]")]
    assert row.split("|")[-2 - behind] == f" {lines} "
