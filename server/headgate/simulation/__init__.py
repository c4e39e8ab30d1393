"""A thousand bad days, from a seed: the production nodes on simulated clocks, networks and shards.

A history is a plain value (history.py) that a seed makes (generate.py). It is run in one thread on virtual time
(loop.py, world.py, runner.py) and checked at every step against the counts of an observer who sees everything
(truth.py, watch.py, quiescence.py). One that fails is made smaller (shrinking.py) and written down for people
(trace.py). Nothing here decides, merges or breaks a circuit: engine, replay, breaker and records are the production
ones.
"""
