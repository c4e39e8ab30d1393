"""Quotas at the origin: what a shard keeps for them, and the operations of nodes and of the keeper on it."""
