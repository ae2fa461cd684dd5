"""Helpers that several test files share: test backends, stand-ins, interrupts, paths."""
