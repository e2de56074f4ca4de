"""Taking more of the disk than one may, by other means than writing."""

import fcntl
import os
import struct

from attack import NUMBERS, attempt, got, main, reaches

NUMBERS["file_setattr"] = (469, 469)
# linux/fs.h: as 64-bit and as 32-bit programs spell them.
GET_FLAGS, SET_FLAGS, SET_FLAGS_32 = 0x80086601, 0x40086602, 0x40046602
GET_XATTR, SET_XATTR = 0x801C581F, 0x401C5820
NO_DUMP, PROJECT_INHERIT = 0x40, 0x20000000
XATTR = "IIIII8s"  # flags, extent size, extents, project, size of copies, padding


def setting_a_project_or_flags_of_a_file(evil):
    """A project decides whose quota counts a file; flags decide what the service can still do with it."""
    os.makedirs("directory", exist_ok=True)
    with open("file", "w"):
        pass
    for name in ("file", "directory"):
        descriptor = os.open(name, os.O_RDONLY)
        flags = struct.unpack("l", attempt(fcntl.ioctl, descriptor, GET_FLAGS, bytes(8)) or bytes(8))[0]
        attributes = attempt(fcntl.ioctl, descriptor, GET_XATTR, bytes(28)) or bytes(28)
        if not evil:
            got(f"flags {flags} and attributes {attributes!r} of the own {name}")
            continue
        wanted = struct.pack(XATTR, PROJECT_INHERIT if name == "directory" else 0, 0, 0, 7, 0, bytes(8))
        for command in (SET_FLAGS, SET_FLAGS_32, SET_FLAGS | 1 << 32):
            reaches("ioctl", descriptor, command, struct.pack("l", flags | NO_DUMP))
        for command in (SET_XATTR, SET_XATTR | 1 << 32):
            reaches("ioctl", descriptor, command, wanted)
        reaches("file_setattr", descriptor, b"", wanted, len(wanted), 0x1000)
        # Encryption and verity, and subvolumes of btrfs.
        for command in (0x800C6613, 0x40806685, 0x5000940E, 0x50009401, 0x4008941A):
            reaches("ioctl", descriptor, command, bytes(4096))
        after = attempt(fcntl.ioctl, descriptor, GET_FLAGS, bytes(8)) or bytes(8)
        if struct.unpack("l", after)[0] != flags:
            got(f"other flags of {name}")


if __name__ == "__main__":
    main(globals())
