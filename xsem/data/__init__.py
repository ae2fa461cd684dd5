"""Plain data: handle types, descriptors, parameters. Nothing here has a lifetime in a driver."""
