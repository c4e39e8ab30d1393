"""The decision log: who was denied by what and why, and what happened meanwhile, kept beside the hot path."""
