"""Messages of gRPC services without generated code: schemas, reflection, JSON templates to bytes and back."""
