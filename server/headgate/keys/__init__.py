"""Operators' side of single limit keys: look at, override and reset them. See service.py."""
