"""Bytes in and bytes out: gRPC by one of two transports, and HTTP."""
