"""What all front-ends share: the models, the account of each request."""
