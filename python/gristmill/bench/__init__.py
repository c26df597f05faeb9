"""Benchmarks beside the best alternatives, in the same run on the same machine."""
