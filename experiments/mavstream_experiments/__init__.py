"""The experiments of the papers, run on the simulator and held against the published figures."""
