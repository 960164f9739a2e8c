"""The parts that windowed operators share: window arithmetic, gates, pane buffers."""
