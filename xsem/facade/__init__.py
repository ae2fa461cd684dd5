"""What an application holds: one noun a file."""
