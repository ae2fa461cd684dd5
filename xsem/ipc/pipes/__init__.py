"""Named pipes of Windows between two processes of one user. ``docs/ipc.md`` describes them."""
