"""The bytes of a log: frames, segments, dictionaries and their encoding."""
