"""Attack suite: hostile load against a real server on loopback, and checks of what must hold meanwhile."""
