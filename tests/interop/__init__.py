"""Real servers from PyPI, each in an environment of its own, driven by whole runs.

Opt-in: ``make interop``; no part of CI.
"""
