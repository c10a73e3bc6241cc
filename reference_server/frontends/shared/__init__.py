"""What two or more front-ends read and write."""
