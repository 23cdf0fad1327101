"""A small node on which decisions are tried: plain Python, its own clock, nothing real."""
