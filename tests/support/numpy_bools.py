"""The bools of NumPy before 2.2, with any version of NumPy."""

from __future__ import annotations

import numpy as np

__all__ = ["IndexedBool"]


class IndexedBool:
    """An object with NumPy's data type of bools and with an index, as `np.True_` before NumPy 2.2."""

    dtype = np.dtype(bool)

    def __index__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "IndexedBool()"   # the same in each process, for names of tests
