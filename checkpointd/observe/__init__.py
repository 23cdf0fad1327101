"""Turn sources into facts: one thread each at most, all posting into one mailbox.

A source says ``Seen`` or ``Unknown`` and nothing else. It never decides, never writes to disk, and
knows no other source.
"""
