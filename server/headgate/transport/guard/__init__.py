"""The guard before the native front, where callers are not trusted by their address.

It owns the listening socket, ends TLS, reads frame headers, and relays what is within its
bounds to the front on a private Unix socket. See `transport.py` for the whole.
"""
