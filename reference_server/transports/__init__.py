"""What carries a request: HTTP, gRPC and WebSocket, each with its stamps, its faults and its refusals."""
