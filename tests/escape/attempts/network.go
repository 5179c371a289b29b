package attempts

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var sockets = []Attempt{
	{Class: "sockets", Name: "packet-socket", Gain: "all packets of the host", run: socket(unix.AF_PACKET, unix.SOCK_RAW, 0x0300)}, // ETH_P_ALL as it is on the wire
	{Class: "sockets", Name: "raw-socket", Gain: "packets with forged addresses", run: socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)},
	{Class: "sockets", Name: "raw-socket-6", Gain: "packets with forged addresses", run: socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6)},
	{Class: "sockets", Name: "audit-socket", Gain: "rules and messages of the host's audit", run: socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT)},
	{Class: "sockets", Name: "netfilter-socket", Gain: "kernel code for packets, which has had many holes", run: socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)},
	{Class: "sockets", Name: "event-socket", Gain: "events of the host's devices", run: socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT)},
	{Class: "sockets", Name: "crypto-socket", Gain: "kernel code that has had holes", run: socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0)},
	{Class: "sockets", Name: "vsock", Gain: "the machine on which the host runs", run: socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)},
	{Class: "sockets", Name: "key-socket", Gain: "keys of the host's network", run: socket(unix.AF_KEY, unix.SOCK_RAW, 2)},
	{Class: "sockets", Name: "change-device", Gain: "another network device", Control: "of a network namespace of its own", run: deviceUp, refused: []syscall.Errno{unix.ENOTTY}},
	{Class: "sockets", Name: "host-socket", Gain: "a service of the host", run: func(t *Target) error { return receiveSecret(t, t.Socket) }},
	{Class: "sockets", Name: "abstract-host-socket", Gain: "a service of the host", run: func(t *Target) error { return receiveSecret(t, t.Abstract) }},
	{Class: "sockets", Name: "host-loopback", Gain: "a service that only the host may use", Control: ownNetwork, run: func(t *Target) error {
		return ask("127.0.0.1", t.Port, "127.0.0.1")
	}},
	{Class: "sockets", Name: "host-address", Gain: "a service of the host", Control: ownNetwork, run: askHost},
}

const ownNetwork = "with a server in a network namespace of its own"

func socket(family, kind, protocol int) func(*Target) error {
	return descriptor(func() (int, error) { return unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol) })
}

// deviceUp sets the flags of the loopback device to their current values.
func deviceUp(*Target) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req)
}

// answerTimeout bounds an attempt that gets no answer.
const answerTimeout = 3 * time.Second

// refusedByNetwork turns each way in which a network refuses a connection into EACCES.
func refusedByNetwork(err error) error {
	for _, refused := range []syscall.Errno{unix.ECONNREFUSED, unix.ECONNRESET, unix.EPIPE, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EADDRNOTAVAIL} {
		if errors.Is(err, refused) {
			return fmt.Errorf("%w (%v)", unix.EACCES, err)
		}
	}
	var lookup *net.DNSError
	var timeout net.Error
	if errors.As(err, &lookup) || errors.As(err, &timeout) && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w (%v)", unix.EACCES, err)
	}
	return err
}

// ask sends a request over HTTP. The egress gateway may accept a connection before it knows the
// host, so a denial, or the end of the connection without an answer, is a refusal. Any other answer
// is an escape.
func ask(host string, port int, name string) error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, itoa(port)), answerTimeout)
	if err != nil {
		return refusedByNetwork(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerTimeout))
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name); err != nil {
		return refusedByNetwork(err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 4096))
	text := string(answer)
	switch {
	case strings.Contains(text, SecretText):
		return nil
	case len(answer) == 0 && err == nil:
		return fmt.Errorf("%w (closed without an answer)", unix.EACCES)
	case len(answer) == 0:
		return refusedByNetwork(err)
	case strings.HasPrefix(text, "HTTP/1.1 403 ") && strings.Contains(strings.ToLower(text), "crannog"):
		return fmt.Errorf("%w (the gateway denied it)", unix.EACCES)
	}
	return fmt.Errorf("the answer is not a denial: %.200q", text)
}

// askHost sends a request to each address of the host.
func askHost(t *Target) error {
	last := error(absentError("the host has no other address"))
	for _, address := range t.Addresses {
		if last = ask(address, t.Port, address); last == nil || !errors.Is(last, unix.EACCES) {
			return last
		}
	}
	return last
}

// serviceSockets are the sockets of services that start containers or act for root.
var serviceSockets = map[string]string{
	"docker": "/run/docker.sock", "docker-in-var": "/var/run/docker.sock", "containerd": "/run/containerd/containerd.sock",
	"podman": "/run/podman/podman.sock", "cri-o": "/run/crio/crio.sock", "buildkit": "/run/buildkit/buildkitd.sock",
	"system-bus": "/run/dbus/system_bus_socket", "systemd": "/run/systemd/private",
}

var services = func() (all []Attempt) {
	for _, name := range []string{"docker", "docker-in-var", "containerd", "podman", "cri-o", "buildkit", "system-bus", "systemd"} {
		all = append(all, Attempt{
			Class: "services of the host", Name: name + "-socket", Gain: "root of the host by a service", Control: "with a server at this path in a mount namespace of its own",
			run: func(*Target) error { return connectTo(serviceSockets[name]) },
		})
	}
	return append(all,
		Attempt{Class: "services of the host", Name: "server-socket", Gain: "all sandboxes, by the server that made this one", run: func(t *Target) error { return connectTo(t.Server) }},
		Attempt{Class: "services of the host", Name: "docker-over-tcp", Gain: "root of the host by a service", Control: ownNetwork, run: func(*Target) error { return ask("127.0.0.1", 2375, "127.0.0.1") }},
	)
}()

// connectTo connects to a Unix socket.
func connectTo(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return refusedByNetwork(unix.Connect(fd, &unix.SockaddrUnix{Name: path}))
}

const metadataGain = "credentials of the machine at its cloud"

var metadata = []Attempt{
	{Class: "cloud metadata", Name: "metadata-address", Gain: metadataGain, Control: ownNetwork, run: func(*Target) error { return ask("169.254.169.254", 80, "169.254.169.254") }},
	{Class: "cloud metadata", Name: "metadata-address-6", Gain: metadataGain, Control: ownNetwork, run: func(*Target) error { return ask("fd00:ec2::254", 80, "[fd00:ec2::254]") }},
	{Class: "cloud metadata", Name: "metadata-of-ecs-tasks", Gain: metadataGain, Control: ownNetwork, run: func(*Target) error { return ask("169.254.170.2", 80, "169.254.170.2") }},
	{Class: "cloud metadata", Name: "metadata-of-alibaba", Gain: metadataGain, Control: ownNetwork, run: func(*Target) error { return ask("100.100.100.200", 80, "100.100.100.200") }},
	{Class: "cloud metadata", Name: "metadata-by-name", Gain: metadataGain, Control: ownNetwork, run: func(*Target) error {
		return ask("metadata.google.internal", 80, "metadata.google.internal")
	}},
	{Class: "cloud metadata", Name: "metadata-by-another-host", Gain: metadataGain, Control: ownNetwork, run: func(*Target) error {
		return ask("169.254.169.254", 80, "example.com")
	}},
}

const dnsGain = "data that leaves in names"

var dns = []Attempt{
	{Class: "DNS", Name: "foreign-resolver", Gain: dnsGain, Control: ownNetwork, run: func(*Target) error { return resolve("udp", "8.8.8.8:53", "leak.crannog.example") }},
	{Class: "DNS", Name: "foreign-resolver-over-tcp", Gain: dnsGain, Control: ownNetwork, run: func(*Target) error { return resolve("tcp", "8.8.8.8:53", "leak.crannog.example") }},
	{Class: "DNS", Name: "foreign-resolver-at-another-port", Gain: dnsGain, Control: ownNetwork, run: func(*Target) error { return resolve("udp", "8.8.8.8:5353", "leak.crannog.example") }},
	{Class: "DNS", Name: "unlisted-name", Gain: dnsGain, Control: ownNetwork, run: func(t *Target) error {
		resolver := "8.8.8.8:53"
		if !t.Control {
			resolver = systemResolver()
		}
		return resolve("udp", resolver, "c2VjcmV0.leak.crannog.example")
	}},
	{Class: "DNS", Name: "name-of-the-host", Gain: "a service that only the host may use, by a name that leads to it", Control: ownNetwork, run: func(t *Target) error {
		return ask("localhost", t.Port, "rebind.crannog.example")
	}},
	{Class: "DNS", Name: "resolver-over-tls", Gain: dnsGain, Control: ownNetwork, run: func(*Target) error { return ask("8.8.8.8", 853, "dns.google") }},
	{Class: "DNS", Name: "multicast-resolver", Gain: "names of the host's network", Control: ownNetwork, run: func(t *Target) error {
		address := "224.0.0.251:5353"
		if t.Control {
			address = "8.8.8.8:5353"
		}
		return resolve("udp", address, "printer.local")
	}},
}

// systemResolver returns the first resolver of /etc/resolv.conf.
func systemResolver() string {
	text, _ := os.ReadFile("/etc/resolv.conf") // without the file there is no resolver
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "nameserver" {
			return net.JoinHostPort(fields[1], "53")
		}
	}
	return "127.0.0.53:53"
}

// resolve asks a resolver for an address. A reply without an address is a refusal.
func resolve(network, address, name string) error {
	conn, err := net.DialTimeout(network, address, answerTimeout)
	if err != nil {
		return refusedByNetwork(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(answerTimeout))
	query := []byte{0x13, 0x37, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range strings.SplitSeq(name, ".") {
		query = append(append(query, byte(len(label))), label...)
	}
	query = append(query, 0, 0, 1, 0, 1)
	if network == "tcp" {
		query = append([]byte{0, byte(len(query))}, query...)
	}
	if _, err := conn.Write(query); err != nil {
		return refusedByNetwork(err)
	}
	answer := make([]byte, 512)
	n, err := io.ReadAtLeast(conn, answer, 12)
	if err != nil {
		return refusedByNetwork(err)
	}
	head := answer[:n]
	if network == "tcp" {
		head = head[2:]
	}
	if answers := int(head[6])<<8 | int(head[7]); answers == 0 {
		return fmt.Errorf("%w (a reply with the code %d and without an address)", unix.EACCES, head[3]&15)
	}
	return nil
}
