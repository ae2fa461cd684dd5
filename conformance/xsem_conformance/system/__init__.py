"""The parts of the suite that differ between operating systems: `posix` and `windows` have modules of the same names.

``handles``: handles of the system, and their number. ``endings``: the end of a process, and its stacks. ``launching``:
a worker's process. ``participants``: a participant's process.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from xsem_conformance.system.windows import endings, handles, launching, participants
else:
    from xsem_conformance.system.posix import endings, handles, launching, participants

__all__ = ["endings", "handles", "launching", "participants"]
