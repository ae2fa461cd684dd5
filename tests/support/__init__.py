"""What several test files share: backends to test with, stand-ins, interrupts, paths."""
