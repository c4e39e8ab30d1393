"""What operators do to single limit keys: look, override, reset. See service.py."""
