"""Sweeps: a grid of lanes, cut into chunks, computed by an executor, kept in a Zarr store that can be resumed."""
