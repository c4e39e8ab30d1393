"""Several regions on virtual time: production nodes and exchangers, with simulated clocks, shards and links."""
