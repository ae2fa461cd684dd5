"""The CPU reference device of xsem."""
