"""Secrets: where they come from, and how none of them leaves a process."""
