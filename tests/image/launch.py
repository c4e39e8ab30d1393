"""The image's process as a container engine would start it: run by `unshare`, as root, in namespaces of its own.

    unshare --mount --pid --net --fork --kill-child python launch.py ROOT RULES ENV… -- COMMAND…

ROOT is made read-only, with a tmpfs at /tmp and RULES at /etc/headgate/rules. The command is process 1, as user 10001,
without a capability and without a way to get one. Only the standard library: nothing of ours is imported here.
"""

import fcntl
import os
import socket
import struct
import subprocess
import sys

SIOCSIFFLAGS, IFF_UP = 0x8914, 1
USER = "10001"


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def loopback_up() -> None:
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def main(root: str, rules: str, environ: list[str], command: list[str]) -> None:
    loopback_up()
    mount("--bind", root, root)
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", f"{root}/tmp")  # noqa: S108  # the container's own
    mount("-t", "proc", "proc", f"{root}/proc")
    mount("--bind", "/dev", f"{root}/dev")
    mount("--bind", rules, f"{root}/etc/headgate/rules")
    mount("-o", "remount,bind,ro", root)
    os.chroot(root)
    os.chdir("/")
    dropped = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups", "--bounding-set", "-all"]
    dropped += ["--inh-caps", "-all", "--no-new-privs"]
    os.execvp(dropped[0], [*dropped, "env", "-i", *environ, *command])  # noqa: S606  # it is to be this process


if __name__ == "__main__":
    split = sys.argv.index("--")
    main(sys.argv[1], sys.argv[2], sys.argv[3:split], sys.argv[split + 1 :])
