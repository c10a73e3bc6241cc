"""gRPC: one call on the stamped HTTP/2 transport or on grpcio, and what dialects share. Messages and schemas are ``harness/protocols/_grpc``."""
