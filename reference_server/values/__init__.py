"""What every part of the server speaks in: errors, durations, tensors, tokens."""
