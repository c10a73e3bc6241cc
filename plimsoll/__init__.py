"""Plimsoll: load testing and SLO conformance for inference endpoints. The one name that an installation adds.

The folders beside this one (``harness``, ``scenarios``, ``slo``, ``reports``, ``reference_server``) are its packages:
links in this folder lead to them, so that Python, mypy and an editor see in a checkout what a wheel holds.
"""
