"""Reading the results of queries over a websocket."""
