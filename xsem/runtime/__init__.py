"""One open device: the operations in flight on its queues, and the objects that may be freed.

docs/explanation/release.md describes the rules that several modules keep together: release, host waits, and Ctrl-C.
"""
