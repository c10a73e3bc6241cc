"""The plan: every query of a run as data, before the first is sent."""
