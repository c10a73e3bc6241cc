"""Verbs that make runs, one or several: search, sweep, comparison, capacity, cold start."""
