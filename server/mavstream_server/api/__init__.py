"""The HTTP interface: REST resources, websockets and metrics. A thin layer without decisions of its own."""
