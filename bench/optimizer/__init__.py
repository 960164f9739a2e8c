"""The run-time optimizer: targets kept, and the cost of watching them."""
