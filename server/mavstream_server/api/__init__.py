"""The outside of the service: REST, websockets, metrics; thin, it decides nothing."""
