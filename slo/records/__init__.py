"""What was measured: one column per stamp, how tables hold it, and what other rows belong to it."""
