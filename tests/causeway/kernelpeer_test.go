package causeway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/egress/gateway"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/frontend/denial"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// kernelPeer is the network of a sandbox without the sandbox. Programs of the host run in a
// separate network namespace, connected only to the egress gateway, so that no engine takes part in
// the test.
type kernelPeer struct {
	pid     int // of a process that holds the namespaces
	dir     string
	records string
}

// proxyForm is the attachment that is only a socket of the proxy, without an interface.
const proxyForm attachmenttest.Form = "proxy"

// kernels is what an environment needs to create kernelPeers.
type kernels struct {
	form    attachmenttest.Form
	gateway *gateway.Client

	mu     sync.Mutex
	sealed map[string]string
	count  int
}

// kernelEnvironment returns an environment whose sandboxes are kernelPeers.
func kernelEnvironment(t *testing.T, form attachmenttest.Form) *environment {
	t.Helper()
	w, err := newInternet()
	if err != nil {
		t.Fatal(err)
	}
	a := &environment{internet: w, state: hosttest.ShortDir(t), kernels: &kernels{form: form, sealed: map[string]string{}}}
	if err := w.write(a.state); err != nil {
		t.Fatal(err)
	}
	if a.kernels.gateway, err = gateway.Connect(t.Context(), a.state, gateway.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		left, err := a.kernels.gateway.List(noContext())
		if err != nil || len(left) > 0 {
			t.Errorf("attachments left at the gateway: %v %v", left, err)
		}
		if err := errors.Join(a.kernels.gateway.Close(), awaitCauseway(a.state)); err != nil {
			t.Error(err)
		}
	})
	return a
}

// kernelPeer creates a network under a policy document, and returns it as a sandbox.
func (a *environment) kernelPeer(t testing.TB, document string) *testSandbox {
	t.Helper()
	d, err := policy.Parse([]byte("policy: v1\nname: task\n" + document))
	if err != nil {
		t.Fatal(err)
	}
	a.kernels.mu.Lock()
	a.kernels.count++
	id := "kernel" + strconv.Itoa(a.kernels.count)
	a.kernels.mu.Unlock()
	k := &kernelPeer{dir: hosttest.ShortDir(t), records: filepath.Join(a.state, id+".ndjson")}
	record, err := os.OpenFile(k.records, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	link := k.start(t, a.kernels.form)
	kind := a.kernels.form.Kind()
	if a.kernels.form == proxyForm {
		kind = egress.Proxy
	}
	_, authority, err := a.kernels.gateway.Attach(t.Context(), gateway.Attachment{
		Sandbox: id, Kind: kind, Link: link, Record: record, Secrets: a.kernels.boundSecrets(d),
		Policy: []policy.Layer{{Kind: policy.LayerTask, Document: d}},
	})
	if err != nil {
		t.Fatalf("attach the network: %v\n%s", err, a.logs())
	}
	link.Close()
	t.Cleanup(func() {
		if err := a.kernels.gateway.Detach(noContext(), id); err != nil {
			t.Error(err)
		}
	})
	inside := tools
	if a.kernels.form == proxyForm {
		inside += connectThroughProxy
	}
	k.write(t, "tools.py", []byte("SLOWNESS = 1.0\n"+inside))
	k.write(t, "world.pem", a.Roots)
	k.write(t, "ca.pem", append(bytes.Clone(a.Roots), authority...))
	return &testSandbox{t: t, environment: a, kernel: k}
}

func (k *kernelPeer) write(t testing.TB, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(k.dir, name), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// start creates the namespaces, and returns the gateway's end.
func (k *kernelPeer) start(t testing.TB, form attachmenttest.Form) *os.File {
	t.Helper()
	k.write(t, "resolv.conf", []byte("nameserver "+egress.Gateway.String()+"\n"))
	hold := "mount --make-rprivate / && mount --bind " + k.dir + "/resolv.conf /etc/resolv.conf && mount --bind " + k.dir + " /tmp && touch /tmp/ready && exec sleep 100000"
	ready := func() {
		hosttest.Eventually(t, "the namespaces are ready", func() bool {
			_, err := os.Stat(filepath.Join(k.dir, "ready"))
			return err == nil
		})
	}
	if form != proxyForm {
		link, kernel := attachmenttest.StartKernel(t, form, *rootless, 0, "unshare", "--mount", "sh", "-c", hold)
		k.pid = kernel.PID()
		kernel.Go()
		ready()
		return link
	}
	link, socket := attachmenttest.ListenProxy(t)
	args := []string{"--net", "--mount"}
	if *rootless {
		args = append(args, "--map-root-user")
	}
	// Every address is local in the namespace, so that a connection to an address without a
	// listener is refused.
	holder := exec.Command("unshare", append(args, "sh", "-c", "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && "+hold)...)
	k.pid = startUntilEnd(t, holder)
	ready()
	// The bridge stays outside the mount namespace, because the socket is not visible inside.
	startUntilEnd(t, k.enter("--net", "python3", "-c", bridge, string(socket)))
	hosttest.Eventually(t, "the bridge listens", func() bool {
		return k.enter("--net", "python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 3128), 9)").Run() == nil
	})
	return link
}

// startUntilEnd starts a program and kills it when the test ends.
func startUntilEnd(t testing.TB, cmd *exec.Cmd) (pid int) {
	t.Helper()
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// enter returns a program that runs in some of the sandbox's namespaces.
func (k *kernelPeer) enter(namespaces string, program ...string) *exec.Cmd {
	args := append([]string{"--target", strconv.Itoa(k.pid)}, strings.Fields(namespaces)...)
	if *rootless {
		args = append(args, "--user", "--preserve-credentials")
	}
	cmd := exec.Command("nsenter", append(args, program...)...)
	cmd.Env = []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/tmp", "LANG=C.UTF-8",
		"SSL_CERT_FILE=/tmp/ca.pem", "CURL_CA_BUNDLE=/tmp/ca.pem",
	}
	return cmd
}

// exec runs a program in the namespaces and returns its output and exit code.
func (k *kernelPeer) exec(t testing.TB, form attachmenttest.Form, stdin string, program ...string) (string, int) {
	t.Helper()
	cmd := k.enter("--net --mount --wd=/tmp", program...)
	if form == proxyForm {
		cmd.Env = append(cmd.Env, "HTTPS_PROXY=http://10.199.0.1:3128", "http_proxy=http://10.199.0.1:3128")
	}
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("run %.200q: %v", program, err)
	}
	return strings.TrimSpace(string(out)), cmd.ProcessState.ExitCode()
}

// flows returns the flow entries so far, as a client of the product sees them.
func (k *kernelPeer) flows(t testing.TB) (list []api.FlowRecord) {
	t.Helper()
	data, err := os.ReadFile(k.records)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		var r egress.Record
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // it is being written
		}
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatal(err)
		}
		list = append(list, denial.Flow(r))
	}
	return list
}

// boundSecrets returns the secrets that a document binds.
func (k *kernels) boundSecrets(d policy.Document) (list []egress.Secret) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, b := range d.Secrets.Bind {
		list = append(list, egress.Secret{
			Name: b.Name, Value: k.sealed[b.Name], Generation: 1, Host: b.Host, Port: b.Port, Header: b.Header, Format: b.Format,
			Methods: b.Methods, Paths: b.Paths, Expires: time.Now().Add(time.Hour),
		})
	}
	return list
}

// bridge serves the proxy's port and a name server on every address. In a sandbox with only a
// socket, the first process does so.
const bridge = `
import socket, struct, sys, threading
def up():
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    return s
def copy(a, b):
    try:
        while True:
            part = a.recv(65536)
            if not part: break
            b.sendall(part)
    except OSError: pass
    try: b.shutdown(socket.SHUT_WR)
    except OSError: pass
def relay(c):
    try: s = up()
    except OSError: return c.close()
    back = threading.Thread(target=copy, args=(s, c))
    back.start()
    copy(c, s)
    back.join()
    c.close()
    s.close()
def listen(port):
    l = socket.create_server(('0.0.0.0', port), backlog=128)
    while True: threading.Thread(target=relay, args=(l.accept()[0],)).start()
def ask(u, q, who):
    try:
        s = up()
        s.sendall(struct.pack('>H', len(q)) + q)
        f = s.makefile('rb')
        a = f.read(struct.unpack('>H', f.read(2))[0])
        u.sendto(a, who)
    except (OSError, struct.error): pass
def names():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.setsockopt(socket.IPPROTO_IP, 8, 1) # IP_PKTINFO: an answer comes from where the query went
    u.bind(('0.0.0.0', 53))
    while True:
        q, info, _, who = u.recvmsg(4096, 256)
        threading.Thread(target=answer, args=(u, q, info, who)).start()
def answer(u, q, info, who):
    class From:
        def sendto(self, data, to): u.sendmsg([data], [(socket.IPPROTO_IP, 8, struct.pack('=I4s4s', 0, info[0][2][4:8], b''))], 0, to)
    ask(From(), q, who)
for f, a in ((listen, (3128,)), (listen, (53,)), (names, ())):
    threading.Thread(target=f, args=a).start()
`

// connectThroughProxy makes the Python tools connect through the proxy, as a library with a proxy
// setting does.
const connectThroughProxy = `
direct = socket.create_connection
def create_connection(address, timeout=300, *a, **k):
    host, port = address
    if port in (53, 3128): return direct(address, timeout, *a, **k)
    s = direct((GATEWAY, 3128), timeout)
    s.sendall(('CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n' % (host, port, host, port)).encode('latin-1'))
    answer = b''
    while not answer.endswith(b'\r\n\r\n'):
        part = s.recv(1)
        if not part: break
        answer += part
    if b' 200 ' not in answer.split(b'\r\n')[0] + b' ': raise ConnectionRefusedError(errno.ECONNREFUSED, 'refused')
    return s
socket.create_connection = create_connection
`
