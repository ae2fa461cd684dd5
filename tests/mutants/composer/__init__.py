"""Faults composed from the driver interface: an operator on a method, an argument and an occurrence."""
