"""Headgate: a multi-region gRPC rate-limit service."""

__version__ = "0.2.0"
