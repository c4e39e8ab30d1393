"""A node of a region: it decides from its own counters, and asks the shards of its region where it must."""
