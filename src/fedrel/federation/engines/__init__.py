"""The engines of a simulation on one machine: one loop, threads, or worker processes."""
