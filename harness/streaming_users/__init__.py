"""Streaming requests of users in Locust: what one means, and its rows."""
