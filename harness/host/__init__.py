"""What the host is, what it can hold open, and what it was found to do."""
