"""The run-time optimizer: monitors QoS targets and acts to meet them."""
