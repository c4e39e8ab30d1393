"""Operators' side of other regions: cut one off, with all that it stated, and take it back."""
