"""Raw logs of smart homes, read as text: each line becomes a row of a stream or is kept with the reason."""
