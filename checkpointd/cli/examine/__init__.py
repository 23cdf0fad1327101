"""Look at a node for `doctor`: each module yields findings on one part of it.

Nothing here changes anything, and nothing is concluded from a failure: what cannot be looked at is
unknown. An examination may hang on a disk or a server: `doctor` waits for none beyond its time.
"""
