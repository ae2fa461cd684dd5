"""A run: the plan of its cases, the processes that run them, and their results."""
