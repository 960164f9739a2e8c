"""The experiments of the papers, run on the simulator and compared with what was published."""
