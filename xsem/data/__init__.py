"""Plain data: handle types, descriptors and parameters. These objects hold no driver resources."""
