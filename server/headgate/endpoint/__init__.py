"""Parts of every listener: sockets, TLS, tokens, and addresses that are trusted without either."""
