"""Headgate: a multi-region gRPC rate-limit service."""

__version__ = "0.1.0"
