"""Who may use the page: hosts and origins, sessions with tokens, and the content security policy."""
