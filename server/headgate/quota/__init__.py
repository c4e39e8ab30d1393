"""Quota: one limit over all regions, a slice for each; slices move only by gifts. (docs/quota.md)

On a node: node_slices.py. At a shard: store.py, operations/, lua/. Between regions: keeper.py, which drives ledger.py.
"""
