"""Front-ends, one file per protocol; each file exports ``FRONTEND``."""
