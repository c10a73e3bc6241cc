"""A report in words, shared by its renderers."""
