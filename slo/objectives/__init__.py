"""What is promised, in every grammar that we read, and whether a run kept it."""
