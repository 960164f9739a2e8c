"""When rows are due: rates, arrival times, the schedule, and how late rows were sent."""
