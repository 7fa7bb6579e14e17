"""Executes a plan: checks, pools, the loop, updates, clipped gradients, noise, sampling."""
