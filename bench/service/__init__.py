"""The service end to end over websockets."""
