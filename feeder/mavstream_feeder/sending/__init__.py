"""Sending rows over one websocket: due rows become frames, frames are kept until acknowledged."""
