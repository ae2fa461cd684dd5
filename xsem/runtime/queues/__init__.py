"""Native queues: what is in flight on each, and the one way of an append to the driver."""
