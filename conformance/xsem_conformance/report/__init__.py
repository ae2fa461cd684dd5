"""Reports of a run: JSON, which has everything, and HTML, Markdown and JUnit made from it."""
