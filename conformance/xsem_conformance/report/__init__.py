"""Reports of a run: JSON with all data, and HTML, Markdown and JUnit made from it."""
