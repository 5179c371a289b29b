package enginetest

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/guest/gen/processpb"
	"github.com/crannog/crannog/internal/guest/gen/processpb/processpbconnect"
	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

const (
	accessToken  = "enginetest-access"
	controlToken = "enginetest-control"
)

// sequence numbers the IDs of this process.
var sequence atomic.Int64

// newID returns an ID that no other test of this process uses.
func newID() string { return fmt.Sprintf("t%dx%d", time.Now().UnixNano()%1e9, sequence.Add(1)) }

// testSandbox is a sandbox under test.
type testSandbox struct {
	e      engine.Engine
	id     string
	client *http.Client
}

// result is the result of a command in a sandbox.
type result struct {
	stdout, stderr string
	code           int
	status         string
}

// spec returns the specification of a sandbox with default options.
func (c *Config) spec(id string) engine.Spec {
	return engine.Spec{ID: id, Hostname: "box", Image: c.Image, Boot: engine.Boot{Config: guestConfig(id)}}
}

// absent returns a configuration with which the guest removes the placeholders of absent files.
func (c *Config) absent(id string, paths []string) []byte { return guestConfig(id, paths...) }

// guestConfig returns the guest's configuration for a new sandbox.
func guestConfig(id string, absent ...string) []byte {
	config, err := json.Marshal(guest.Config{
		SandboxID: id, TemplateID: "base", Hostname: "box", AccessToken: accessToken, ControlToken: controlToken,
		DefaultUser: "user", Absent: absent, MemoryBytes: 1 << 30, MilliCPU: 2000, DiskBytes: 1 << 30, PIDs: 512,
	})
	if err != nil {
		panic(err)
	}
	return config
}

// start creates a sandbox and removes it when the test ends.
func (c *Config) start(t testing.TB, e engine.Engine, change ...func(*engine.Spec)) *testSandbox {
	t.Helper()
	spec := c.spec(newID())
	for _, f := range change {
		f(&spec)
	}
	if err := e.Create(t.Context(), spec); err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Remove(context.Background(), spec.ID); err != nil {
			t.Errorf("remove %s: %v", spec.ID, err)
		}
	})
	return attach(t, e, spec.ID)
}

// attach returns a handle for an existing sandbox.
func attach(t testing.TB, e engine.Engine, id string) *testSandbox {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return e.Dial(ctx, id, guestboot.Port)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &testSandbox{e: e, id: id, client: &http.Client{Transport: transport}}
}

// exec runs a command as a user and collects its output. On engines on which no program can be
// root, commands of root run as the sandbox's user, which has all rights that a program can have
// there.
func (b *testSandbox) exec(ctx context.Context, user string, argv ...string) (result, error) {
	if user == "root" && b.e.Info().NoRoot {
		user = "user"
	}
	client := processpbconnect.NewProcessClient(b.client, "http://guest", connect.WithProtoJSON())
	stdin := false
	req := connect.NewRequest(&processpb.StartRequest{
		Process: &processpb.ProcessConfig{Cmd: argv[0], Args: argv[1:]}, Stdin: &stdin,
	})
	req.Header().Set("X-Access-Token", accessToken)
	req.Header().Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":")))
	stream, err := client.Start(ctx, req)
	if err != nil {
		return result{}, err
	}
	defer stream.Close()
	var stdout, stderr bytes.Buffer
	for stream.Receive() {
		switch e := stream.Msg().GetEvent().GetEvent().(type) {
		case *processpb.ProcessEvent_Data:
			stdout.Write(e.Data.GetStdout())
			stderr.Write(e.Data.GetStderr())
		case *processpb.ProcessEvent_End:
			return result{stdout.String(), stderr.String(), int(e.End.GetExitCode()), e.End.GetStatus()}, nil
		}
	}
	return result{stdout.String(), stderr.String(), -1, ""}, errors.Join(stream.Err(), errors.New("the stream ended before the command"))
}

// sh runs a shell command as the sandbox's user and fails the test if it cannot be started. The
// caller checks the result.
func (b *testSandbox) sh(t testing.TB, line string) result {
	t.Helper()
	return b.shAs(t, "user", line)
}

// shAs is sh as another user.
func (b *testSandbox) shAs(t testing.TB, user, line string) result {
	t.Helper()
	ctx, cancel := hosttest.Bounded(t)
	defer cancel()
	r, err := b.exec(ctx, user, "/bin/sh", "-c", line)
	if err != nil {
		t.Fatalf("%s: %v (so far: %q %q)", line, err, r.stdout, r.stderr)
	}
	return r
}

// tryAll runs shell commands one after the other, each in a subshell of one shell, because starting
// a program takes most of the time of a short command. It returns their exit codes.
func (b *testSandbox) tryAll(t testing.TB, user string, lines ...string) []int {
	t.Helper()
	const script = `for line in "$@"; do (eval "$line") </dev/null >/dev/null 2>&1; echo $?; done`
	ctx, cancel := hosttest.Bounded(t)
	defer cancel()
	r, err := b.exec(ctx, user, append([]string{"/bin/sh", "-c", script, "sh"}, lines...)...)
	if err != nil {
		t.Fatalf("%q: %v (so far: %q %q)", lines, err, r.stdout, r.stderr)
	}
	var codes []int
	for text := range strings.FieldsSeq(r.stdout) {
		code, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("the shell printed %q: %v", r.stdout, err)
		}
		codes = append(codes, code)
	}
	if r.code != 0 || len(codes) != len(lines) {
		t.Fatalf("%d of %d commands ran: %+v", len(codes), len(lines), r)
	}
	return codes
}

// wantAll checks that all commands succeed, or that all fail, in a directory.
func (b *testSandbox) wantAll(t testing.TB, succeed bool, user, dir string, lines ...string) {
	t.Helper()
	there := make([]string, len(lines))
	for i, line := range lines {
		there[i] = "cd " + dir + " && " + line
	}
	for i, code := range b.tryAll(t, user, there...) {
		if (code == 0) != succeed {
			t.Errorf("as %s: %s exits with %d", user, lines[i], code)
		}
	}
}

// want runs a shell command and checks its output.
func (b *testSandbox) want(t testing.TB, line, out string) {
	t.Helper()
	if r := b.sh(t, line); r.code != 0 || strings.TrimSpace(r.stdout) != out {
		t.Errorf("%s: got %q (code %d, stderr %q), want %q", line, r.stdout, r.code, r.stderr, out)
	}
}
