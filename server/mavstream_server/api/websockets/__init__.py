"""The websocket endpoints."""
