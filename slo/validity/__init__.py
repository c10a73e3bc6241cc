"""Whether the generator kept its own promise, so that a run may be judged at all."""
