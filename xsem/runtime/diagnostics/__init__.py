"""Reports: pending operations, the likely causes of a timeout, and the watchdog."""
