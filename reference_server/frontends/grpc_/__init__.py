"""The gRPC front-end: KServe v2, health, reflection, streaming speech."""
