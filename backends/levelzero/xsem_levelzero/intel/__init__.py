"""What is true of Intel's driver only: flaws of its releases, and what xsem does about them (docs/levelzero.md)."""
