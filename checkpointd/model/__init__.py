"""Hold the frozen nouns that all floors share: values that are valid once they exist.

Nothing here does I/O, reads a clock, logs, or decides.
"""
