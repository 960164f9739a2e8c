"""Messages on the wire: what producers, subscribers and the server say to each other."""
