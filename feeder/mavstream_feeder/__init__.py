"""The Poisson feeder and the data jobs; both come with the service."""
