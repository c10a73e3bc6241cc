"""Connections: the stamped stream, and HTTP, gRPC and live sessions on it."""
