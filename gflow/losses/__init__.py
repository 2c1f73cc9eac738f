"""Losses: pure functions of parameters (`induction` is the flagship; classical flows have closed-form solutions)."""
