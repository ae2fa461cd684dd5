"""Draw the records of a folder: benchmarks.png, and handover.png from the records without and with MPS.

    python benchmarks/plots.py records/nvidia-h200
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.plot import pictures


def main() -> None:
    """Draw, and print the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for path in pictures(folder, folder):
        print(path)


if __name__ == "__main__":
    main()
