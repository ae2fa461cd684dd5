"""One open device: the operations in flight on its queues, and the objects that may be freed."""
