"""Measure the daemon against the budget (design, section 10) on the embedded node: `make bench`."""
