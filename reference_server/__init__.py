"""A small, honest inference server to point a load generator at.

It imports nothing from the load generator: the two share a wire contract, never code, so that neither can
flatter the other.
"""
