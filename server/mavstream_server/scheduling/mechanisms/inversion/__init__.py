"""Detection and correction of priority inversion: a class that answers later than a less important one."""
