"""The command `gflow`: one module per command, for parsing and printing only; JAX is loaded when a command needs it."""
