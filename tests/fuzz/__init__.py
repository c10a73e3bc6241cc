"""Every reader of what users name, on inputs that nobody means: ``python -m tests.fuzz READER``."""
