"""Quota: one limit over all regions, a slice for each; slices move only by gifts. No I/O, no clock. (docs/quota.md)"""
