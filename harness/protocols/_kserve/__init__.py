"""KServe v2's tensors and calls, as the protocols over HTTP and gRPC share them."""
