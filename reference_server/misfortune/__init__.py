"""Misfortune on request: named faults at start or while running, each honoured where it would strike in life."""
