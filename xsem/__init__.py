"""xsem: external semaphores and memory for GPU compute, one API for all vendors."""

__version__ = "0.1.0"
