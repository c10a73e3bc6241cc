"""This room keeps connections: the stamped stream, and HTTP, gRPC and live sessions on it."""
