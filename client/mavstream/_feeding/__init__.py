"""Feeding rows into streams over a websocket."""
