"""Calls to the kernel that no Python of a model needs, refused by a seccomp filter: tracing, new
namespaces and mounts, key rings, memory that outlives a process or is counted by no limit, sockets
of families that no namespace holds back, as those to the host of a virtual machine, and every way
to name the supervisor.

The supervisor of a worker is the only process in sight that does not belong to the call. It is
process 1 and has one thread, so a call may name every number but that one.

The filter is a program of classic BPF, as in the kernel's `seccomp_filter.rst`.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Mapping

SUPERVISOR = 1
MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # and their AUDIT_ARCH
Numbers = tuple[int, int]  # of a call, on each of the machines

REFUSED: dict[str, Numbers] = {
    "ptrace": (101, 117),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "io_uring_setup": (425, 425),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "memfd_secret": (447, 447),
    # they take a descriptor of a process, which also a folder of /proc is
    "pidfd_send_signal": (424, 424),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    # the handle of such a descriptor is a number that can be guessed
    "open_by_handle_at": (304, 265),
    # the number of a process stands in memory, which no filter reads
    "capget": (125, 90),
    "kcmp": (312, 272),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
}
# Calls that are refused for a value of an argument: {argument: values}.
Arguments = dict[int, tuple[int, ...]]
_FIRST: Arguments = {0: (SUPERVISOR,)}
_EITHER: Arguments = {0: (SUPERVISOR,), 1: (SUPERVISOR,)}
ARGUMENTS: dict[str, tuple[Numbers, Arguments]] = {
    "kill": ((62, 129), _FIRST),
    "tkill": ((200, 130), _FIRST),
    "tgkill": ((234, 131), _EITHER),
    "rt_sigqueueinfo": ((129, 138), _FIRST),
    "rt_tgsigqueueinfo": ((297, 240), _EITHER),
    "pidfd_open": ((434, 434), _FIRST),
    "prlimit64": ((302, 261), _FIRST),
    # of a user: PRIO_USER, IOPRIO_WHO_USER; the supervisor has the same one
    "getpriority": ((140, 141), {0: (2,), 1: (SUPERVISOR,)}),
    "setpriority": ((141, 140), {0: (2,), 1: (SUPERVISOR,)}),
    "ioprio_set": ((251, 30), {0: (3,), 1: (SUPERVISOR,)}),
    "ioprio_get": ((252, 31), {0: (3,), 1: (SUPERVISOR,)}),
    "sched_setparam": ((142, 118), _FIRST),
    "sched_getparam": ((143, 121), _FIRST),
    "sched_setscheduler": ((144, 119), _FIRST),
    "sched_getscheduler": ((145, 120), _FIRST),
    "sched_rr_get_interval": ((148, 127), _FIRST),
    "sched_setaffinity": ((203, 122), _FIRST),
    "sched_getaffinity": ((204, 123), _FIRST),
    "sched_setattr": ((314, 274), _FIRST),
    "sched_getattr": ((315, 275), _FIRST),
    "setpgid": ((109, 154), _EITHER),
    "getpgid": ((121, 155), _FIRST),
    "getsid": ((124, 156), _FIRST),
    "get_robust_list": ((274, 100), _FIRST),
    # F_SETOWN, F_SETOWN_EX; FIOSETOWN, SIOCSPGRP: whom a signal tells of a descriptor
    "fcntl": ((72, 25), {1: (8, 15)}),
    "ioctl": ((16, 29), {1: (0x8901, 0x8902)}),
    # PR_SCHED_CORE, PR_SET_PTRACER
    "prctl": ((157, 167), {0: (62, 0x59616D61)}),
}
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKET = (41, 198)
_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_ANY_BIT = 0x45
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_EPERM = 0x00050001
_ENOSYS = 0x00050026
_EAFNOSUPPORT = 0x00050061
# offsets in struct seccomp_data; arguments take 8 bytes
_NUMBER = 0
_ARCH = 4
_ARGUMENT = 16
# families that end at the namespace's own loopback
_UNIX = 1
_INET = 2
_INET6 = 10
_SPACES = 0x7E020000  # every CLONE_NEW... flag
_X32 = 0x40000000  # on x86_64 a second set of numbers
Line = tuple[int, int, int, int]  # code, value, jump where true, jump where false


def program(machine: str = platform.machine()) -> bytes:
    """The filter for a machine; b"" where its numbers are not known."""
    if machine not in MACHINES:
        return b""
    kind = list(MACHINES).index(machine)
    # jumps are counted from the next line
    lines = [(_LOAD, _ARCH, 0, 0), (_EQUAL, MACHINES[machine], 1, 0), (_RETURN, _EPERM, 0, 0)]
    lines += [(_LOAD, _NUMBER, 0, 0), (_AT_LEAST, _X32, 0, 1), (_RETURN, _EPERM, 0, 0)]
    for numbers in REFUSED.values():
        lines += [(_EQUAL, numbers[kind], 0, 1), (_RETURN, _EPERM, 0, 0)]
    for numbers, refused in ARGUMENTS.values():
        body = _refusals(refused)
        lines += [(_EQUAL, numbers[kind], 0, len(body)), *body]
    lines += [(_EQUAL, _SOCKET[kind], 0, 6), (_LOAD, _ARGUMENT, 0, 0), (_EQUAL, _UNIX, 2, 0)]
    lines += [(_EQUAL, _INET, 1, 0), (_EQUAL, _INET6, 0, 1), (_RETURN, _ALLOW, 0, 0)]
    lines += [(_RETURN, _EAFNOSUPPORT, 0, 0)]
    # its flags lie in memory, which no filter reads; without it libraries take clone
    lines += [(_EQUAL, _CLONE3[kind], 0, 1), (_RETURN, _ENOSYS, 0, 0)]
    lines += [(_EQUAL, _CLONE[kind], 0, 3)]
    lines += [(_LOAD, _ARGUMENT, 0, 0), (_ANY_BIT, _SPACES, 0, 1), (_RETURN, _EPERM, 0, 0)]
    lines += [(_RETURN, _ALLOW, 0, 0)]
    return b"".join(struct.pack("HBBI", code, true, no, value) for code, value, true, no in lines)


def _refusals(refused: Mapping[int, tuple[int, ...]]) -> list[Line]:
    """Refuses by arguments, of which the kernel takes the lower half, and allows the rest."""
    lines: list[Line] = []
    for argument, values in refused.items():
        lines.append((_LOAD, _ARGUMENT + 8 * argument, 0, 0))
        for value in values:
            lines += [(_EQUAL, value, 0, 1), (_RETURN, _EPERM, 0, 0)]
    return [*lines, (_RETURN, _ALLOW, 0, 0)]
