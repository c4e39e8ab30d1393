"""Operators' side of callers: shut one out of a domain, for a time; `headgate.v1.Blocks` and `headgate block`."""
