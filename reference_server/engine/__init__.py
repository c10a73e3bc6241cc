"""What computes: the step loop, its scheduler, batches and the models that they drive."""
