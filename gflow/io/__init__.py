"""Files: atomic outputs, provenance, the caches on disk. Nothing here imports JAX before it is needed."""
