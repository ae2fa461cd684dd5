"""Native queues: the operations in flight on each, and the append of an operation to the driver."""
