"""Calls of Windows about NT handles and processes, and its error codes. On other systems, most modules are empty."""
