"""Benchmarks of the hot path: ``make bench`` (``python -m tests.bench``)."""
