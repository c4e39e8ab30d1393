"""What commands share: the flags that name a server, the way to ask it, and how they print."""
