"""Several processes that serve as one: `--workers N`.

The supervisor owns the HTTP address, the processes and what they leave behind; it decides
nothing. Each worker is a whole service and a node of its own. `run.py` is the life of the
supervisor, `worker.py` that of a worker; `channel.py` is all they say to each other.
"""
