"""The regional layer: what the nodes of a region know together."""
