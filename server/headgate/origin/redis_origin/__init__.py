"""The regional origin in Redis: independent shards, a Cluster, or a primary found by Sentinel."""
