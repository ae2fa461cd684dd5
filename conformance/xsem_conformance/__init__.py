"""What a device really does, asked requirement by requirement: the conformance suite of xsem."""
