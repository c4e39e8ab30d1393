"""What every listener is made with: sockets, TLS, tokens, and who is trusted by address alone."""
