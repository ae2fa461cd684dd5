"""One case: the importer and the exporter of a requirement's check, and what a check measures with them."""
