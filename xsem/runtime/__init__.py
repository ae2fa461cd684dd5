"""One open device: what is in flight on its queues, and what may be freed."""
