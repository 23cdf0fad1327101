"""Make a parent pod into a copy that a kubelet accepts offline, or say why that cannot be.

Everything here is pure: values in, values out. ``copy`` joins the parts, ``gate`` has the last word
over every manifest, ``content`` hashes the files of volumes. Nothing here reads a disk or a clock.
"""
