"""Calls to the kernel that no Python of a model needs, refused by a seccomp filter: tracing, new
namespaces and mounts, key rings, memory that outlives a process or is counted by no limit, and
sockets of families that no namespace holds back, as those to the host of a virtual machine.

The filter is a program of classic BPF, as in the kernel's `seccomp_filter.rst`.
"""

from __future__ import annotations

import platform
import struct

# io_uring_setup; the new calls for mounts; memfd_secret
_COMMON = (425, 428, 429, 430, 431, 432, 442, 447)
# by machine: its AUDIT_ARCH, clone, clone3, socket, and what is refused
_MACHINES: dict[str, tuple[int, int, int, int, tuple[int, ...]]] = {
    # ptrace unshare setns mount umount2 pivot_root keyctl add_key request_key bpf perf_event_open
    # userfaultfd process_vm_readv process_vm_writev shmget msgget semget mq_open
    # memfd_create
    "x86_64": (
        0xC000003E,
        56,
        435,
        41,
        (
            101,
            272,
            308,
            165,
            166,
            155,
            250,
            248,
            249,
            321,
            298,
            323,
            310,
            311,
            246,
            29,
            68,
            64,
            240,
            319,
        ),
    ),
    "aarch64": (
        0xC00000B7,
        220,
        435,
        198,
        (117, 97, 268, 40, 39, 41, 219, 217, 218, 280, 241, 282, 270, 271, 194, 186, 190, 180, 279),
    ),
}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _EPERM, _ENOSYS, _EAFNOSUPPORT = 0x7FFF0000, 0x00050001, 0x00050026, 0x00050061
_NUMBER, _ARCH, _FIRST = 0, 4, 16  # offsets in struct seccomp_data; _FIRST: clone's flags, a family
_UNIX, _INET, _INET6 = 1, 2, 10  # families that end at the namespace's own loopback
_SPACES = 0x7E020000  # every CLONE_NEW... flag
_X32 = 0x40000000  # on x86_64 a second set of numbers


def program() -> bytes:
    """The filter for this machine; b"" where its numbers are not known."""
    known = _MACHINES.get(platform.machine())
    if known is None:
        return b""
    arch, clone, clone3, socket, refused = known
    # (code, value, jump where true, jump where false), jumps counted from the next line
    lines = [(_LOAD, _ARCH, 0, 0), (_EQUAL, arch, 1, 0), (_RETURN, _EPERM, 0, 0)]
    lines += [(_LOAD, _NUMBER, 0, 0), (_AT_LEAST, _X32, 0, 1), (_RETURN, _EPERM, 0, 0)]
    for number in (*refused, *_COMMON):
        lines += [(_EQUAL, number, 0, 1), (_RETURN, _EPERM, 0, 0)]
    lines += [(_EQUAL, socket, 0, 6), (_LOAD, _FIRST, 0, 0), (_EQUAL, _UNIX, 2, 0)]
    lines += [(_EQUAL, _INET, 1, 0), (_EQUAL, _INET6, 0, 1), (_RETURN, _ALLOW, 0, 0)]
    lines += [(_RETURN, _EAFNOSUPPORT, 0, 0)]
    # its flags lie in memory, which no filter reads; without it libraries take clone
    lines += [(_EQUAL, clone3, 0, 1), (_RETURN, _ENOSYS, 0, 0), (_EQUAL, clone, 0, 3)]
    lines += [(_LOAD, _FIRST, 0, 0), (_ANY_BIT, _SPACES, 0, 1), (_RETURN, _EPERM, 0, 0)]
    lines += [(_RETURN, _ALLOW, 0, 0)]
    return b"".join(struct.pack("HBBI", code, true, no, value) for code, value, true, no in lines)
