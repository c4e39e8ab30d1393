"""Limits, counters, algorithms and the engine of a node on its own: pure, without input or output."""
