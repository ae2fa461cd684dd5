"""The checks, by area. `xsem_conformance.checks.check` registers each of them for one requirement."""
