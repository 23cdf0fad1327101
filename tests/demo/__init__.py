"""The story that ``make demo`` tells: the last API server is lost and comes back, twice."""
