"""Requests and websockets: conversations as steps, and the two ways of carrying them out."""
