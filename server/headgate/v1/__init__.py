"""Headgate's own messages between processes: generated from protos/headgate/v1, by `make protos`, and never edited."""
