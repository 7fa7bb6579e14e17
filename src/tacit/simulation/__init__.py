"""CustomerSim, the simulated corpus with gold spans."""
