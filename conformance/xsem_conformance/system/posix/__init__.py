"""Linux, and as far as possible other systems of POSIX."""
