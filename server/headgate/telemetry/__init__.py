"""Logs and metrics: bounded, and without cost to a decision."""
