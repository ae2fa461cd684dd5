"""Draw the records of a GPU for the documents, as docs/pictures/GPU-benchmarks.png and GPU-handover.png.

    python benchmarks/plots.py records/nvidia-h200
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.plot import pictures

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"


def main() -> None:
    """Draw, and print the files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    for path in pictures(parser.parse_args().folder.resolve(), PICTURES):
        print(path.relative_to(PICTURES.parents[1]))


if __name__ == "__main__":
    main()
