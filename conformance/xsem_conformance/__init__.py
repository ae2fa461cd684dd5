"""The conformance suite of xsem: what a device really does, for any backend that registers with xsem."""
