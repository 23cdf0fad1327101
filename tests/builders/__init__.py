"""Build the values that tests state: plain functions with defaults for what matters not."""
