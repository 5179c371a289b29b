# Tries attacks on the host and on the guest, and prints a JSON list of the results. Each attack runs
# in a child process, returns if it succeeds, and otherwise raises OSError.
# The argument is the PID of the guest, or in a control of another process.
import ctypes, fcntl, json, mmap, os, pty, signal, socket, struct, sys, termios

victim = int(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
RESULTS = []


def call(number, *args):
    ctypes.set_errno(0)
    args = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_void_p(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def reaches_kernel(number, *args):
    """Succeeds if the kernel handles the call, even if it rejects the invalid arguments."""
    try:
        return call(number, *args)
    except OSError as err:
        # EINVAL, EFAULT, EBADF, ESRCH, ENOENT
        if err.errno not in (22, 14, 9, 3, 2):
            raise


def attempt(name, do):
    """Runs an attack in a child process, which a filter may kill."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        signal.alarm(20)
        try:
            do()
            os.write(write, b"open")
        except BaseException as err:
            os.write(write, ("refused: %r" % err).encode())
        os._exit(0)
    os.close(write)
    text = os.read(read, 4096).decode(errors="replace")
    os.close(read)
    status = os.waitpid(pid, 0)[1]
    RESULTS.append({"name": name, "open": text == "open", "why": text or "status %d" % status})


def readable(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not os.read(fd, 16):
        raise OSError(61, "empty")


def writable(path):
    os.close(os.open(path, os.O_WRONLY))


def sock(family, kind, protocol=0):
    socket.socket(family, kind, protocol).close()


def trace():
    PTRACE_ATTACH, PTRACE_DETACH = 16, 17
    call(101, PTRACE_ATTACH, victim, 0, 0)
    os.waitpid(victim, 0x40000000)
    call(101, PTRACE_DETACH, victim, 0, 0)


def read_memory():
    start = int(open("/proc/%d/maps" % victim).read().split("-")[0], 16)
    buffer = ctypes.create_string_buffer(8)
    local, remote = struct.pack("PN", ctypes.addressof(buffer), 8), struct.pack("PN", start, 8)
    call(310, victim, local, 1, remote, 1, 0)


def read_mem_file():
    start = int(open("/proc/%d/maps" % victim).read().split("-")[0], 16)
    with open("/proc/%d/mem" % victim, "rb", 0) as f:
        f.seek(start)
        f.read(8)


def take_descriptor():
    pidfd = os.pidfd_open(victim)
    os.close(call(438, pidfd, 0, 0))


def own_namespace(flag):
    return lambda: call(272, flag)


def cloned_namespace():
    pid = call(56, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def joined_namespace():
    call(308, os.open("/proc/self/ns/mnt", os.O_RDONLY), 0)


def type_into():
    leader, follower = pty.openpty()
    os.setsid()
    fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
    fcntl.ioctl(follower, termios.TIOCSTI, b"x")


def x32():
    call(0x40000000 + 39)


def raise_priority():
    """Asks for more than it has, because the engine may have been started with a raised priority."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, before - 5)
    if os.getpriority(os.PRIO_PROCESS, 0) >= before:
        raise OSError(1, "the priority is already the highest")


attempt("trace-guest", trace)
attempt("read-guest-memory", read_memory)
attempt("read-guest-mem-file", read_mem_file)
attempt("take-guest-descriptor", take_descriptor)
attempt("guest-root", lambda: os.listdir("/proc/%d/root/" % victim))
attempt("guest-environment", lambda: open("/proc/%d/environ" % victim).read())
attempt("guest-maps", lambda: open("/proc/%d/maps" % victim).read(1) or open("/nonexistent"))
attempt("guest-program", lambda: os.close(os.open("/proc/%d/exe" % victim, os.O_RDONLY)))
attempt("guest-descriptor", lambda: os.readlink("/proc/%d/fd/0" % victim))
attempt("guest-directory", lambda: os.listdir("/proc/%d/cwd/" % victim))
attempt("guest-namespace", lambda: os.readlink("/proc/%d/ns/mnt" % victim))
for name, flag in (("user", 0x10000000), ("mount", 0x20000), ("network", 0x40000000), ("pid", 0x20000000), ("ipc", 0x8000000), ("uts", 0x4000000), ("cgroup", 0x2000000), ("time", 0x80)):
    attempt("own-%s-namespace" % name, own_namespace(flag))
attempt("cloned-namespace", cloned_namespace)
attempt("joined-namespace", joined_namespace)
attempt("mount-memory", lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, 0))
attempt("mount-proc", lambda: call(165, b"proc", b"/tmp", b"proc", 0, 0))
attempt("bind", lambda: call(165, b"/usr", b"/tmp", 0, 4096, 0))
attempt("remount", lambda: call(165, 0, b"/", 0, 32 | 4096, 0))
attempt("new-mount-interface", lambda: os.close(call(430, b"tmpfs", 0)))
attempt("copy-of-mounts", lambda: os.close(call(428, -100, b"/", 1)))
attempt("change-root", lambda: call(161, b"/tmp"))
attempt("device-node", lambda: os.mknod("/tmp/zero%d" % os.getpid(), 0o20666, os.makedev(1, 5)))
attempt("disk-node", lambda: os.mknod("/tmp/disk%d" % os.getpid(), 0o60666, os.makedev(254, 0)))
attempt("handle-of-file", lambda: reaches_kernel(304, 3, 0, 0))
attempt("io-uring", lambda: reaches_kernel(425, 8, 0))
attempt("userfaultfd", lambda: os.close(call(323, 1)))
attempt("bpf", lambda: reaches_kernel(321, 0, 0, 0))
attempt("perf", lambda: reaches_kernel(298, 0, 0, -1, -1, 0))
attempt("key-ring", lambda: call(250, 0, -3, 1))
attempt("add-key", lambda: call(248, b"user", b"x", b"y", 1, -2))
attempt("watch-all-files", lambda: os.close(call(300, 0x200, 0)))
attempt("kernel-log", lambda: call(103, 10, 0, 0))
attempt("set-clock", lambda: reaches_kernel(227, 0, 0))
attempt("raise-priority", raise_priority)
attempt("host-name", lambda: socket.sethostname("elsewhere"))
attempt("raw-socket", lambda: sock(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet-socket", lambda: sock(socket.AF_PACKET, socket.SOCK_RAW, 0x300))
attempt("vsock", lambda: sock(40, socket.SOCK_STREAM))
attempt("algorithm-socket", lambda: sock(38, socket.SOCK_SEQPACKET))
attempt("audit-socket", lambda: sock(socket.AF_NETLINK, socket.SOCK_RAW, 9))
attempt("netfilter-socket", lambda: sock(socket.AF_NETLINK, socket.SOCK_RAW, 12))
attempt("event-socket", lambda: sock(socket.AF_NETLINK, socket.SOCK_RAW, 15))
attempt("type-into-terminal", type_into)
attempt("x32-call", x32)
for name, path in (("symbols", "kallsyms"), ("config", "config.gz"), ("keys", "keys"), ("interrupts", "interrupts"), ("timers", "timer_list"), ("zones", "zoneinfo"), ("partitions", "partitions"), ("disks", "diskstats"), ("memory-map", "iomem")):
    attempt("read-" + name, lambda: readable("/proc/" + path))
for path in ("kernel/core_pattern", "vm/drop_caches", "kernel/hostname", "net/ipv4/ip_forward", "fs/file-max"):
    attempt("write-" + path.replace("/", "-"), lambda: writable("/proc/sys/" + path))
attempt("host-devices", lambda: os.listdir("/sys/class/block")[0])
print(json.dumps(RESULTS))
