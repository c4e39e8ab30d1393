"""Where bytes come in and go out: gRPC by one of two transports, and HTTP."""
