"""What clients speak: one file a dialect, from requests to values and from answers to bytes."""
