"""Where parts of the server meet: answers, runners, ground truth."""
