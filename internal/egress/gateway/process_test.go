package gateway

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// newEnvironment creates a state directory whose process reaches one HTTP server at every address.
func newEnvironment(t testing.TB) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.URL.Path)
	}))
	t.Cleanup(s.Close)
	return newState(t, testEnvironment{
		Addresses: map[string]string{"api.test": "93.184.216.34", "raw.test": "93.184.216.35"}, Upstream: s.Listener.Addr().String(),
	})
}

func wantGet(t testing.TB, b *testPeer, path string, want int) {
	t.Helper()
	if got, err := b.get(path); err != nil || got != want {
		t.Fatalf("GET %s: %d, %v; want %d", path, got, err, want)
	}
}

func TestConcurrentClientsStartOneProcess(t *testing.T) {
	dir := newEnvironment(t)
	clients := make([]*Client, 20)
	var wait sync.WaitGroup
	for i := range clients {
		wait.Go(func() {
			c, err := Connect(t.Context(), dir, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			clients[i] = c
		})
	}
	wait.Wait()
	pids := map[int]bool{}
	for _, c := range clients {
		if c != nil {
			pids[c.Info().PID] = true
			c.Close()
		}
	}
	if len(pids) != 1 || len(processes(t, dir)) != 1 {
		t.Fatalf("the clients use the processes %v, and %v run, want one", pids, processes(t, dir))
	}
}

// processes returns the IDs of the gateway processes of a state directory.
func processes(t testing.TB, dir string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.HasPrefix(string(line), Arg0+"\x00"+dir) {
			out = append(out, pid)
		}
	}
	return out
}

// A sandbox reaches the hosts that its policy allows, and flow entries record that.
func TestSandboxReachesAllowedHost(t *testing.T) {
	dir := newEnvironment(t)
	events := make(chan Event, 16)
	c := mustConnect(t, dir, Options{Event: func(e Event) { events <- e }})
	b := mustAttach(t, c, dir, "box1")
	wantGet(t, b, "/hello", 200)
	if _, err := b.dial("other.test", 80); err == nil {
		t.Error("an unlisted host is reachable")
	}
	list, err := c.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("List = %+v, %v, want one sandbox", list, err)
	}
	if s := list[0]; s.Sandbox != "box1" || !s.Controlled || s.Policy == "" || s.Records < 3 || s.Refused == 0 || s.Received == 0 {
		t.Errorf("the status is %+v, want that of box1 with its controller, policy, entries, denials and received bytes", s)
	}
	if _, _, err := c.Attach(t.Context(), testAttachment(t, dir, "box1")); fault.KindOf(err) != fault.Exists {
		t.Errorf("second Attach of a sandbox: got %v, want Exists", err)
	}
	wantEvent(t, events, Event{Sandbox: "box1", Kind: EventAttached})
	// The network ends with the sandbox.
	b.Close()
	wantEvent(t, events, Event{Sandbox: "box1", Kind: EventDetached, Reason: "the sandbox has ended"})
	if list, err := c.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("List after the end = %+v, %v, want no sandboxes", list, err)
	}
	records := readRecords(t, dir, "box1")
	kinds := map[egress.Kind]int{}
	for _, r := range records {
		kinds[r.Kind]++
	}
	if kinds[egress.KindHTTP] != 1 || kinds[egress.KindLink] < 2 || kinds[egress.KindDNS] < 2 {
		t.Errorf("flow entries by kind: %v, want 1 http, at least 2 link and at least 2 dns", kinds)
	}
	// The next attachment of the same sandbox continues the numbering.
	b = mustAttach(t, c, dir, "box1")
	wantGet(t, b, "/again", 200)
	if err := c.Detach(t.Context(), "box1"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.get("/after"); err == nil {
		t.Error("a detached sandbox still reaches the host")
	}
	if again := readRecords(t, dir, "box1"); len(again) < len(records)+3 {
		t.Errorf("%d flow entries after the second attachment, %d before", len(again), len(records))
	}
}

func wantEvent(t testing.TB, events <-chan Event, want Event) {
	t.Helper()
	select {
	case got := <-events:
		if got != want {
			t.Fatalf("event %+v, want %+v", got, want)
		}
	case <-hosttest.Late():
		t.Fatalf("the event %+v did not arrive", want)
	}
}

func TestUpdateReplacesPolicy(t *testing.T) {
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	b := mustAttach(t, c, dir, "box1")
	wantGet(t, b, "/hello", 200)
	none := documents(t)
	none[0].Document.Network.Hosts = nil
	if err := c.Update(t.Context(), "box1", none, nil, false); err != nil {
		t.Fatal(err)
	}
	if _, err := b.get("/hello"); err == nil {
		t.Error("a host that the new policy denies is reachable")
	}
	if err := c.Update(t.Context(), "box2", none, nil, false); fault.CodeOf(err) != egress.CodeNotAttached {
		t.Errorf("Update of an unknown sandbox: got %v, want %s", err, egress.CodeNotAttached)
	}
	bad := documents(t)
	bad[0].Document.Level = "no-such-level"
	if err := c.Update(t.Context(), "box1", bad, nil, false); err == nil {
		t.Error("Update accepted an invalid policy")
	}
}

// If the process is killed, every sandbox loses its network.
func TestKilledProcessEndsNetworks(t *testing.T) {
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	b := mustAttach(t, c, dir, "box1")
	flow, err := b.dial("raw.test", 7000)
	if err != nil {
		t.Fatal(err)
	}
	wantGet(t, b, "/hello", 200)
	if err := unix.Kill(c.Info().PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Done():
	case <-hosttest.Late():
		t.Fatal("the client does not detect the end of the process")
	}
	if _, err := c.List(t.Context()); fault.CodeOf(err) != "causeway_lost" {
		t.Errorf("List: got %v, want causeway_lost", err)
	}
	if _, _, err := c.Attach(t.Context(), testAttachment(t, dir, "box2")); fault.CodeOf(err) != "causeway_lost" {
		t.Errorf("Attach: got %v, want causeway_lost", err)
	}
	_ = flow.SetDeadline(time.Now().Add(time.Second))
	if _, err := flow.Read(make([]byte, 1)); err == nil {
		t.Error("the flow does not end with the process")
	}
	if _, err := b.lookup("api.test"); err == nil {
		t.Error("DNS queries are still answered")
	}
	// Another Connect starts another process, which has no sandboxes.
	again := mustConnect(t, dir, Options{})
	if again.Info().PID == c.Info().PID {
		t.Error("Connect reached the killed process")
	}
	if missing, err := again.Adopt(t.Context(), "box1"); err != nil || len(missing) != 1 {
		t.Errorf("Adopt: got missing %v, %v, want box1", missing, err)
	}
}

// askFunc is an approver that calls a function.
type askFunc func(context.Context, egress.ApprovalRequest) (egress.ApprovalOutcome, error)

func (f askFunc) Ask(ctx context.Context, q egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
	return f(ctx, q)
}

// runController attaches a sandbox, passes the sandbox's end to the test, and waits to be killed.
func runController() {
	dir := os.Args[1]
	c, err := Connect(context.Background(), dir, Options{Program: self})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	var a Attachment
	if err := json.NewDecoder(os.Stdin).Decode(&a.Policy); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	a.Sandbox, a.Record = "box1", os.NewFile(4, "record")
	end, _, err := c.Attach(context.Background(), a)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if err := unix.Sendmsg(3, []byte("x"), unix.UnixRights(int(end.Fd())), nil, 0); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	end.Close()
	fmt.Println("attached")
	select {}
}

// startController returns a sandbox whose controller is another process.
func startController(t *testing.T, dir string) (*testPeer, *exec.Cmd) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	childEnd := os.NewFile(uintptr(pair[1]), "child-end")
	defer childEnd.Close()
	layers, err := json.Marshal(documents(t))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = []string{"test-controller", dir}
	cmd.Stdin = strings.NewReader(string(layers))
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = []*os.File{childEnd, recordFile(t, dir, "box1")}
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "attached\n" {
		t.Fatalf("the controller printed %q, want attached", line)
	}
	rights := make([]byte, 64)
	_, n, _, _, err := unix.Recvmsg(pair[0], make([]byte, 1), rights, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	files := parseRights(rights[:n])
	if len(files) != 1 {
		t.Fatalf("the controller sent %d descriptors, want 1", len(files))
	}
	return newTestPeer(t, files[0]), cmd
}

// If a server is killed, its sandboxes keep their network, and the next server gets their approval
// requests.
func TestKilledControllerKeepsNetworks(t *testing.T) {
	dir := newEnvironment(t)
	b, controller := startController(t, dir)
	flow, err := b.dial("api.test", 80)
	if err != nil {
		t.Fatal(err)
	}
	defer flow.Close()
	if err := controller.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = controller.Wait()
	// Open flows continue, and new ones work.
	wantGet(t, b, "/hello", 200)
	_ = flow.SetDeadline(hosttest.Deadline())
	fmt.Fprint(flow, "GET /flow HTTP/1.1\r\nHost: api.test\r\n\r\n")
	if answer, err := http.ReadResponse(bufio.NewReader(flow), nil); err != nil || answer.StatusCode != 200 {
		t.Fatalf("the flow ended with the controller: %v", err)
	}
	asked := make(chan egress.ApprovalRequest, 1)
	c := mustConnect(t, dir, Options{Asker: askFunc(func(_ context.Context, q egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
		asked <- q
		return egress.ApprovalOutcome{Granted: true, Approval: "a1", State: "approved"}, nil
	})})
	if list, err := c.List(t.Context()); err != nil || len(list) != 1 || list[0].Controlled {
		t.Fatalf("List = %+v, %v, want one sandbox without a controller", list, err)
	}
	// The request waits for a controller, and is answered when a controller adopts the sandbox.
	status := make(chan int, 1)
	go func() { code, _ := b.get("/ask"); status <- code }()
	if missing, err := c.Adopt(t.Context(), "box1", "box2"); err != nil || len(missing) != 1 || missing[0] != "box2" {
		t.Fatalf("Adopt: missing %v, %v, want box2", missing, err)
	}
	if got := <-status; got != 200 {
		t.Errorf("a granted request has status %d, want 200", got)
	}
	if q := <-asked; q.Sandbox != "box1" || q.Kind != egress.AskRequest {
		t.Errorf("the approval request is %+v, want one of box1 for a request", q)
	}
}

func TestInvalidGrantsAreRejected(t *testing.T) {
	dir := newEnvironment(t)
	var mu sync.Mutex
	var answer egress.ApprovalOutcome
	c := mustConnect(t, dir, Options{Asker: askFunc(func(context.Context, egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
		mu.Lock()
		defer mu.Unlock()
		return answer, nil
	})})
	b := mustAttach(t, c, dir, "box1")
	for _, try := range []struct {
		answer  egress.ApprovalOutcome
		granted bool
	}{
		{egress.ApprovalOutcome{Granted: true, State: "approved"}, false}, // without an approval
		{egress.ApprovalOutcome{Granted: true, State: "pending", Approval: "a1"}, false},
		{egress.ApprovalOutcome{State: "approved", Approval: "a1"}, false},
		{egress.ApprovalOutcome{State: "denied", Approval: "a1"}, false},
		{egress.ApprovalOutcome{}, false},
		{egress.ApprovalOutcome{Granted: true, State: "approved", Approval: "a1"}, true}, // Control
	} {
		mu.Lock()
		answer = try.answer
		mu.Unlock()
		if code, err := b.get("/ask"); err != nil || (code == 200) != try.granted {
			t.Errorf("with the outcome %+v: status %d, %v, want granted %v", try.answer, code, err, try.granted)
		}
	}
}

// A body that is too large for memory is stored in an unnamed file, which the confined process
// creates in its spool.
func TestLargeBodyIsSpooled(t *testing.T) {
	dir := newEnvironment(t)
	held := make(chan string, 1)
	c := mustConnect(t, dir, Options{Asker: askFunc(func(context.Context, egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
		entries, err := os.ReadDir(filepath.Join(dir, dirName, spoolName))
		held <- fmt.Sprint(len(entries), err)
		return egress.ApprovalOutcome{Granted: true, State: "approved", Approval: "a1"}, nil
	})})
	b := mustAttach(t, c, dir, "box1")
	const size = 8 << 20
	if code, err := b.send(http.MethodPost, "/ask", bytes.NewReader(make([]byte, size))); err != nil || code != 200 {
		t.Fatalf("POST of a large body: status %d, %v, want 200", code, err)
	}
	if got := <-held; got != "0 <nil>" {
		t.Errorf("the spool has named files: %s", got)
	}
	// The entry is written after the answer has been forwarded.
	hosttest.EventuallyAtMost(t, "bytes that were not sent", 0, func() int {
		list, err := c.List(t.Context())
		if err != nil || len(list) != 1 {
			t.Fatalf("List = %+v, %v, want one sandbox", list, err)
		}
		return size - int(list[0].Sent)
	})
}

// Only the owner and root may use the process, even if another user gets its socket.
func TestOtherUsersAreRejected(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	own := filepath.Join(dir, dirName)
	if info, err := os.Stat(filepath.Join(own, socketName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the mode of the socket is %v, want 0600: %v", info.Mode(), err)
	}
	if info, err := os.Stat(own); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the mode of the directory is %v, want 0700: %v", info.Mode(), err)
	}
	ask := func(uid uint32) string {
		handle, err := os.OpenFile(own, unix.O_PATH, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer handle.Close()
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{"test-stranger"}
		cmd.ExtraFiles = []*os.File{handle}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	if got := ask(1000); !strings.Contains(got, "permission denied") {
		t.Errorf("another user: got %q, want permission denied", got)
	}
	// With wider modes another user can connect to the socket, but the process closes the
	// connection.
	if err := errors.Join(os.Chmod(own, 0o777), os.Chmod(filepath.Join(own, socketName), 0o666)); err != nil {
		t.Fatal(err)
	}
	if got := ask(1000); got != "closed" {
		t.Errorf("another user with access to the socket: got %q, want closed", got)
	}
	if got := ask(0); got != "welcome" {
		t.Errorf("root: got %q, want welcome", got)
	}
	if _, err := Connect(t.Context(), dir, Options{}); fault.CodeOf(err) != "causeway_directory" {
		t.Errorf("Connect with a directory that is open to all: got %v, want causeway_directory", err)
	}
	if err := os.Chmod(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := c.List(t.Context()); err != nil {
		t.Error(err)
	}
}

func runForeignProcess() {
	conn, err := net.Dial("unix", "/proc/self/fd/3/"+socketName)
	if err != nil {
		fmt.Println(err)
		return
	}
	p := newPeer(conn.(*net.UnixConn), false, nil)
	go func() { _ = p.serve() }()
	if err := p.call(context.Background(), callHello, hello{Oldest: oldest, Version: version}, nil); err != nil {
		fmt.Println("closed")
		return
	}
	fmt.Println("welcome")
}
