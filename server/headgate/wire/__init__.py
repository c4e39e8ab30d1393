"""Envoy's rate limit messages, to and from plain values."""
