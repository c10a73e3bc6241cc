"""gRPC on our own HTTP/2: calls on the stamped stream, and the seam to the dialects. It knows no protobuf."""
