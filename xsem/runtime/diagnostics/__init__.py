"""What is pending, why a host wait timed out, and the watchdog that reports it."""
