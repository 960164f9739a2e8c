"""The binary format of a log: frames, segments, dictionaries and their encoding."""
