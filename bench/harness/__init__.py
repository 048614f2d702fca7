"""The parts of `bench/run`: what is started, what is asked of it, and what is made of the figures."""
