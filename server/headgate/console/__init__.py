"""Parts that commands share: the flags that name a server, the way to ask it, printing."""
