"""What windowed operators share: window arithmetic, gates, pane buffers."""
