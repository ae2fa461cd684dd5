"""``xsem trace show``: read traces of xsem, find who ended each wait, and show it as text, data or a page."""
