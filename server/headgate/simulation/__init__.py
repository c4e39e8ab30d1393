"""Time, loop and network for running the production engine exactly, from a seed."""
