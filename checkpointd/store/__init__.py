"""Keep on our own disk what must outlive the process, the boot and a power cut.

Belongs here: the layout, the format of each file, checksums, quarantine, and ``durable.Disk``,
through which every write of the program goes. Must not: decide anything, read other systems, log.
"""
