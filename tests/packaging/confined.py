"""Runs a service's command line under the limits of its unit, without systemd. As root.

    confined.py UNIT               ExecStart
    confined.py UNIT COMMAND …     another command, under the same limits

Applies the user, the resource limits, the file system (strict, with the service's folders and a private /tmp), the
capabilities, and the filters of system calls, address families and executable memory. What a unit has beside them is not
applied; `NOT_APPLIED` names it. A directive in neither list is an error, so that a new one is not forgotten.
"""

import ctypes
import os
import pwd
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

APPLIED = """User Group ExecStart WorkingDirectory StateDirectory StateDirectoryMode RuntimeDirectory RuntimeDirectoryMode
    UMask LimitNOFILE LimitCORE NoNewPrivileges CapabilityBoundingSet AmbientCapabilities ProtectSystem ProtectHome
    PrivateTmp RestrictAddressFamilies MemoryDenyWriteExecute SystemCallFilter SystemCallErrorNumber""".split()
NOT_APPLIED = """Type ExecReload Restart RestartSec TimeoutStopSec PrivateDevices ProtectClock ProtectHostname
    ProtectControlGroups ProtectKernelLogs ProtectKernelModules ProtectKernelTunables ProtectProc RemoveIPC
    RestrictNamespaces RestrictRealtime RestrictSUIDSGID LockPersonality SystemCallArchitectures""".split()

# What this program applies has these values in the unit.
VALUES = {
    "AmbientCapabilities": "",
    "CapabilityBoundingSet": "",
    "LimitCORE": "0",
    "MemoryDenyWriteExecute": "yes",
    "NoNewPrivileges": "yes",
    "PrivateTmp": "yes",
    "ProtectHome": "yes",
    "ProtectSystem": "strict",
    "SystemCallErrorNumber": "EPERM",
}

libc = ctypes.CDLL(None, use_errno=True)
seccomp = ctypes.CDLL("libseccomp.so.2")
seccomp.seccomp_init.restype = ctypes.c_void_p

CLONE_NEWNS = 0x20000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
ALLOW, EPERM, EAFNOSUPPORT = 0x7FFF0000, 1, 97
EQUAL, MASKED_EQUAL = 4, 7
PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}
LAST_FAMILY, LAST_CAPABILITY = 45, 63


def checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def service(unit: str) -> dict[str, list[str]]:
    """The directives of the section [Service], each with all of its values."""
    text = Path(unit).read_text().split("[Service]", 1)[1].split("\n[", 1)[0]
    directives = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE):
        if name not in APPLIED + NOT_APPLIED:
            sys.exit(f"{unit}: {name} is neither applied nor listed as not applied")
        directives.setdefault(name, []).append(value)
    for name, value in VALUES.items():
        if directives.get(name) != [value]:
            sys.exit(f"{unit}: {name} is {directives.get(name)}, and {value!r} is what can be applied here")
    return directives


def system_calls(directives: dict[str, list[str]]) -> set[str]:
    """What SystemCallFilter allows."""

    def expanded(names: list[str]) -> set[str]:
        calls = set()
        for name in names:
            if not name.startswith("@"):
                calls.add(name)
                continue
            listed = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True)
            words = [line.strip() for line in listed.stdout.splitlines()[1:]]
            calls |= expanded([word for word in words if word and not word.startswith("#")])
        return calls

    allowed = set()
    for value in directives["SystemCallFilter"]:
        if value.startswith("~"):
            allowed -= expanded(value[1:].split())
        else:
            allowed |= expanded(value.split())
    # systemd always allows these: its own process has to execute the command, and every program to end.
    return allowed | expanded(["@default", "execve"])


class Comparison(ctypes.Structure):
    _fields_ = [("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


def refusal(number: int) -> int:
    return 0x00050000 | number


def load_filter(default: int, rules: list[tuple[str, int, list[Comparison]]]) -> None:
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(default)))
    for name, action, comparisons in rules:
        call = seccomp.seccomp_syscall_resolve_name(name.encode())
        if call >= 0:
            array = (Comparison * len(comparisons))(*comparisons)
            checked(-seccomp.seccomp_rule_add_array(context, ctypes.c_uint32(action), call, len(comparisons), array))
    checked(-seccomp.seccomp_load(context))


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    checked(libc.mount(source.encode(), target.encode(), kind and kind.encode(), ctypes.c_ulong(flags), data.encode()))


def confine_files(writable: list[str]) -> None:
    """ProtectSystem=strict, ProtectHome=yes and PrivateTmp=yes, in a mount namespace of this process."""
    checked(libc.unshare(CLONE_NEWNS))
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    for folder in writable:
        mount(folder, folder, None, MS_BIND)
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for target in mounted:
        kept = target in writable or re.match(r"/(proc|sys|dev)(/|$)", target)
        if not kept:
            # Without the flags that the mount has, such as nosuid, the kernel may refuse.
            flags = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV)
            mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
    for folder in ("/tmp", "/var/tmp"):
        mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for folder in ("/home", "/root", "/run/user"):
        if Path(folder).is_dir():
            mount("tmpfs", folder, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, "mode=000")


def drop_privileges(user: pwd.struct_passwd) -> None:
    for capability in range(LAST_CAPABILITY + 1):
        # Beyond the kernel's last one it fails.
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.initgroups(user.pw_name, user.pw_gid)
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    checked(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def confine_calls(allowed: set[str], families: list[str]) -> None:
    both = PROT_WRITE | PROT_EXEC
    refused = [
        ("mmap", [Comparison(2, MASKED_EQUAL, both, both)]),
        ("mprotect", [Comparison(2, MASKED_EQUAL, PROT_EXEC, PROT_EXEC)]),
        ("pkey_mprotect", [Comparison(2, MASKED_EQUAL, PROT_EXEC, PROT_EXEC)]),
        ("shmat", [Comparison(2, MASKED_EQUAL, SHM_EXEC, SHM_EXEC)]),
    ]
    rules = [(name, refusal(EPERM), comparisons) for name, comparisons in refused]
    numbers = {FAMILIES[name] for name in families}
    for family in set(range(LAST_FAMILY + 1)) - numbers:
        rules.append(("socket", refusal(EAFNOSUPPORT), [Comparison(0, EQUAL, family, 0)]))
    load_filter(ALLOW, rules)
    # The last, because it need not allow to load another.
    load_filter(refusal(EPERM), [(name, ALLOW, []) for name in sorted(allowed)])


def main() -> None:
    directives = service(sys.argv[1])
    one = {name: values[-1] for name, values in directives.items()}
    command = sys.argv[2:] or shlex.split(one["ExecStart"])
    user = pwd.getpwnam(one["User"])
    allowed = system_calls(directives)

    writable = []
    for parent, kind in (("/var/lib", "StateDirectory"), ("/run", "RuntimeDirectory")):
        folder = Path(parent, one[kind])
        folder.mkdir(exist_ok=True)
        folder.chmod(int(one[f"{kind}Mode"], 8))
        os.chown(folder, user.pw_uid, user.pw_gid)
        writable.append(str(folder))
    files, most = int(one["LimitNOFILE"]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < files:
        # Root of some virtual machines may not raise its own hard limit.
        print(f"note: LimitNOFILE is {files}, and this machine allows {most}", file=sys.stderr)
        files = most
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, files), files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    confine_files(writable)
    os.chdir(one["WorkingDirectory"])
    os.umask(int(one["UMask"], 8))
    drop_privileges(user)
    confine_calls(allowed, one["RestrictAddressFamilies"].split())
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": user.pw_dir, "USER": user.pw_name, "LANG": "C.UTF-8"}
    os.execve(command[0], command, environment)


if __name__ == "__main__":
    main()
