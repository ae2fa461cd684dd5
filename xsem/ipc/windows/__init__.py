"""Named pipes of Windows between two processes of one user, and tickets over them. ``docs/ipc.md`` describes both."""
