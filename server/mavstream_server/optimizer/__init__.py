"""The run-time optimizer: watches targets of service and acts to keep them."""
