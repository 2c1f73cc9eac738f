"""What theory says about the flow: plateau, growth rate, times of the phases, late-time laws, limits."""
