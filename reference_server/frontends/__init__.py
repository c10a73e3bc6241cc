"""Front-ends, one folder per transport. What a wire means to the models, whichever it is, stands here beside them."""
