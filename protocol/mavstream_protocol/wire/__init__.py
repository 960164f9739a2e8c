"""Messages and resources that producers, subscribers and the server exchange."""
