"""The checks, by area. Each is registered for one requirement by `xsem_conformance.checks.check`."""
