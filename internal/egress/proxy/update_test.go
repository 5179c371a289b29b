package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// wantEnd fails unless a connection ends. Connections do not end by themselves, because
// withoutTimeouts removes the limits for slow ones.
func wantEnd(t *testing.T, what string, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(hosttest.Deadline())
	for {
		_, err := c.Read(make([]byte, 512))
		if err == nil {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s continues", what)
		}
		return
	}
}

// withoutTimeouts configures a sandbox in which no connection ends because it is slow.
func withoutTimeouts(c *Config) {
	c.Limits.Handshake, c.Limits.Idle, c.Limits.Stall = 24*time.Hour, 24*time.Hour, 24*time.Hour
}

func TestUpdateClosesForbiddenConnections(t *testing.T) {
	w := newEnvironment(t)
	w.webSocketServer(true, "ws.good.test")
	hang := make(chan struct{})
	defer close(hang)
	slow := func(rw http.ResponseWriter, r *http.Request) {
		rw.Write([]byte("begun"))
		rw.(http.Flusher).Flush()
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}
	w.serve("443", slow, "pass.good.test", "api.good.test", "kept.good.test")
	echoes, _ := w.listen("5432", "db.good.test")
	go func() {
		for {
			c, err := echoes.Accept()
			if err != nil {
				return
			}
			go func() { io.Copy(c, c); c.Close() }()
		}
	}()
	before := `
level: minimal
network:
  unlisted: deny
  hosts:
    - {host: ws.good.test, ports: [80], rules: [{id: ws, methods: [GET], paths: ["/ws"], do: allow}]}
    - {host: pass.good.test, rules: [{do: allow}]}
    - {host: api.good.test, rules: [{methods: [GET], do: allow}]}
    - {host: kept.good.test, rules: [{do: allow}]}
    - {host: db.good.test, ports: [5432], tunnel: true, rules: [{do: allow}]}
`
	b := w.newSandbox(before, withoutTimeouts)
	ws := b.webSocket()
	defer ws.Close()
	echo(t, ws, "one")
	db, err := b.dial("db.good.test", 5432)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	echo(t, db, "two")
	begin := func(host string, spliced bool) net.Conn {
		roots := b.trust
		if spliced {
			roots = w.roots
		}
		c, err := b.tls(host, host, roots)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		got := make([]byte, 12)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "HTTP/1.1 200" {
			t.Fatalf("the response of %s begins with %q %v", host, got, err)
		}
		return c
	}
	pass, api, kept := begin("pass.good.test", true), begin("api.good.test", false), begin("kept.good.test", true)
	// An update to an equivalent policy ends no connection.
	if err := b.Update(compiled(t, before+"git: {fetch: allow}\n"), nil); err != nil {
		t.Fatal(err)
	}
	echo(t, ws, "three")
	echo(t, db, "four")
	after := `
level: minimal
network: {unlisted: deny, hosts: [{host: kept.good.test, rules: [{do: allow}]}, {host: ws.good.test, ports: [80], rules: [{id: ws, methods: [GET], paths: ["/other"], do: allow}]}, {host: api.good.test, rules: [{methods: [GET], paths: ["/x"], do: allow}]}]}
`
	if err := b.Update(compiled(t, after), nil); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, "the WebSocket", ws)
	wantEnd(t, "the tunnel", db)
	wantEnd(t, "the uninspected connection", pass)
	wantEnd(t, "the request", api)
	kept.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	for {
		if _, err := kept.Read(make([]byte, 512)); err != nil {
			if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
				t.Errorf("a connection that is still allowed ended: %v", err)
			}
			break
		}
	}
	hosttest.Eventually(t, "four entries have the reason", func() bool {
		n := 0
		for _, r := range b.records.all(egress.KindTLS, egress.KindTunnel, egress.KindWebSocket, egress.KindHTTP) {
			if strings.Contains(r.Error, "no longer allows") {
				n++
			}
		}
		return n == 4
	})
}

func TestWebSocketEndsWithSecret(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Upgrade", "websocket")
		rw.Header().Set("Connection", "Upgrade")
		rw.WriteHeader(101)
		c, _, err := rw.(http.Hijacker).Hijack()
		if err == nil {
			io.WriteString(c, "you are "+r.Header.Get("Authorization"))
			io.Copy(io.Discard, c)
			c.Close()
		}
	}, "api.good.test")
	b := w.newSandbox(boundHost, withToken, withoutTimeouts)
	c, err := b.tls("api.good.test", "api.good.test", b.trust)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.good.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	var got []byte
	for !strings.Contains(string(got), "you are ") || !strings.Contains(string(got), "****") {
		buf := make([]byte, 512)
		n, err := c.Read(buf)
		if got = append(got, buf[:n]...); err != nil {
			t.Fatalf("the WebSocket returned %q, then %v", got, err)
		}
	}
	if strings.Contains(string(got), secretValue) {
		t.Errorf("the WebSocket contains the secret: %q", got)
	}
	if err := b.Update(b.current.Load().policy, nil); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, "the WebSocket", c)
}

func TestUpdateEndsPendingApproval(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	b := w.newSandbox(askPolicy)
	asked := make(chan struct{})
	b.people.answer = func(ctx context.Context, _ egress.ApprovalRequest) (egress.ApprovalOutcome, error) {
		close(asked)
		<-ctx.Done()
		return egress.ApprovalOutcome{Granted: true, State: "approved"}, nil // too late
	}
	done := make(chan int)
	go func() {
		code, _ := b.do("POST", "https://api.good.test/", "x", nil)
		done <- code
	}()
	<-asked
	if err := b.Update(compiled(t, oneHostPolicy), nil); err != nil {
		t.Fatal(err)
	}
	if code := <-done; code == 200 || len(up.log()) != 0 {
		t.Errorf("a request whose approval came after the update: got %d, upstream got %d requests", code, len(up.log()))
	}
}

func TestSandboxLimits(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", func(rw http.ResponseWriter, r *http.Request) { rw.Write(make([]byte, 1000)) }, "api.good.test")
	text := `
level: minimal
network:
  unlisted: deny
  hosts:
    - host: api.good.test
      rules:
        - {id: few, methods: [GET], paths: ["/few"], do: allow, limits: {requests: 2, per: 1h}}
        - {id: small, methods: [GET], paths: ["/small"], do: allow, limits: {bytes: 1500}}
        - {id: write, methods: [POST], do: ask}
`
	b := w.newSandbox(text, func(c *Config) {
		c.Limits = Limits{Connections: 4, Header: 8 << 10, Body: 1 << 20, Spool: 1 << 20}
	})
	keep := b.client(false)
	for i, want := range []int{200, 200, 429, 429} {
		if code, body := b.with(keep, "GET", "https://api.good.test/few", "", nil); code != want {
			t.Errorf("request %d: got %d %s, want %d", i, code, body, want)
		}
	}
	if code, body := b.with(keep, "GET", "https://api.good.test/small", "", nil); code != 200 {
		t.Errorf("the first request with limited bytes: got %d %s, want 200", code, body)
	}
	b.with(keep, "GET", "https://api.good.test/small", "", nil)
	if code, _ := b.with(keep, "GET", "https://api.good.test/small", "", nil); code != 429 {
		t.Errorf("a request beyond the limit of bytes: got %d, want 429", code)
	}
	if code, _ := b.with(keep, "POST", "https://api.good.test/", strings.Repeat("x", 2<<20), nil); code != 413 {
		t.Errorf("a body beyond the limit: got %d, want 413", code)
	}
	before := len(up.log())
	c, err := b.tls("api.good.test", "api.good.test", b.trust)
	if err != nil {
		t.Fatal(err)
	}
	if got := b.raw(c, "GET /few HTTP/1.1\r\nHost: api.good.test\r\nX: "+strings.Repeat("x", 64<<10)+"\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 431") && !strings.Contains(got, "reset") {
		t.Errorf("a header beyond the limit: got %.80s, want 431", got)
	}
	// A header that arrives too slowly and a hello that does not arrive are tested in another
	// sandbox, because its limit is too short for a handshake on a busy machine.
	hasty := w.newSandbox(text, func(c *Config) { c.Limits = Limits{Handshake: 200 * time.Millisecond} })
	for _, text := range []string{"GET / HTTP/1.1\r\nHost:", "\x16\x03\x01"} {
		c, err := hasty.dial("api.good.test", 443)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, text)
		wantEnd(t, "a slow client", c)
		c.Close()
	}
	hosttest.Eventually(t, "the connections have ended", func() bool { return len(b.open()) <= 1 })
	var conns []net.Conn
	refused := 0
	for range 12 {
		c, err := b.dial("api.good.test", 443)
		if err != nil {
			refused++
			continue
		}
		conns = append(conns, c)
	}
	if refused < 8 {
		t.Errorf("%d of 12 connections were refused with a limit of 4, want at least 8", refused)
	}
	for _, c := range conns {
		c.Close()
	}
	if len(up.log()) != before {
		t.Error("a connection beyond the limits reached upstream")
	}
}

func TestRuleLimitsItsConnections(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", nil, "pass.good.test")
	b := w.newSandbox(`
level: minimal
network: {unlisted: deny, hosts: [{host: pass.good.test, rules: [{do: allow, limits: {connections: 1}}]}]}
`)
	first, err := b.tls("pass.good.test", "pass.good.test", w.roots)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.tls("pass.good.test", "pass.good.test", w.roots); err == nil {
		t.Error("a second connection was accepted with a limit of 1")
	}
	first.Close()
	hosttest.Eventually(t, "a new connection is accepted after the first has ended", func() bool {
		c, err := b.tls("pass.good.test", "pass.good.test", w.roots)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

func TestSandboxesShareNothing(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test")
	a, b := w.newSandbox(oneHostPolicy, withToken), w.newSandbox(oneHostPolicy)
	if code, _ := a.get("https://api.good.test/"); code != 200 {
		t.Fatalf("an allowed request: got %d, want 200", code)
	}
	if code, _ := b.get("https://api.good.test/"); code != 200 {
		t.Fatalf("an allowed request: got %d, want 200", code)
	}
	if up.log()[0].Auth != "Bearer "+secretValue || up.log()[1].Auth != "" {
		t.Errorf("upstream got %+v, want the secret of the first sandbox only", up.log())
	}
	if w.dials.Load() != 2 {
		t.Errorf("%d upstream connections for two sandboxes, want 2", w.dials.Load())
	}
	if _, err := b.tls("api.good.test", "api.good.test", a.trust); err == nil {
		t.Error("one sandbox's authority signed for another sandbox")
	}
}

func TestNothingHappensWithoutEntry(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test", "pass.good.test")
	b := w.newSandbox(oneHostPolicy, func(c *Config) { c.Secrets = []egress.Secret{token("other.good.test")} })
	keep := b.client(false)
	if code, _ := b.with(keep, "GET", "https://api.good.test/", "", nil); code != 200 {
		t.Fatalf("an allowed request: got %d, want 200", code)
	}
	b.records.fail.Store(true)
	if b.Names(query(t, "api.good.test", 1), 512) != nil {
		t.Error("a DNS query was answered without an entry")
	}
	for range 3 {
		if code, body := b.with(keep, "GET", "https://api.good.test/", "", nil); code == 200 {
			t.Errorf("a request without an entry: got %d %s, want a refusal", code, body)
		}
	}
	if _, err := b.dial(netip.MustParseAddr("198.18.0.1").String(), 443); err == nil {
		t.Error("a connection was accepted without an entry")
	}
	if err := b.Update(b.current.Load().policy, nil); err == nil {
		t.Error("an update succeeded without an entry")
	}
	if n := len(up.log()); n != 1 {
		t.Errorf("upstream got %d requests, want 1", n)
	}
	b.records.fail.Store(false)
	if code, body := b.get("https://api.good.test/"); code != 200 {
		t.Errorf("when entries can be written again: got %d %s, want 200", code, body)
	}
	lost := false
	for _, r := range b.records.all(egress.KindLink) {
		lost = lost || strings.Contains(r.Reason, "lost")
	}
	if !lost {
		t.Error("no entry reports that entries were lost")
	}
}

func TestCloseEndsAllConnections(t *testing.T) {
	w := newEnvironment(t)
	w.serve("443", nil, "api.good.test", "pass.good.test")
	w.webSocketServer(true, "ws.good.test")
	b := w.newSandbox(oneHostPolicy + "    - {host: ws.good.test, ports: [80], rules: [{do: allow}]}\n")
	c := b.client(true)
	if code, _ := b.with(c, "GET", "https://api.good.test/", "", nil); code != 200 {
		t.Fatalf("an allowed request: got %d, want 200", code)
	}
	ws := b.webSocket()
	defer ws.Close()
	pass, err := b.tls("pass.good.test", "pass.good.test", w.roots)
	if err != nil {
		t.Fatal(err)
	}
	defer pass.Close()
	idle, err := b.dial("api.good.test", 443)
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	done := make(chan struct{})
	go func() { b.Close(); close(done) }()
	select {
	case <-done:
	case <-hosttest.Late():
		t.Fatal("Close does not return")
	}
	b.Close() // a second time has no effect
	c.CloseIdleConnections()
	hosttest.Eventually(t, "no goroutine of the sandbox is left", func() bool {
		buf := make([]byte, 1<<20)
		stacks := string(buf[:runtime.Stack(buf, true)])
		return !strings.Contains(stacks, "proxy.(*Handler)") && !strings.Contains(stacks, "proxy.(*flow)")
	})
	if _, err := b.dial("api.good.test", 443); err == nil {
		t.Error("a closed handler accepted a connection")
	}
}

func TestHTTP2Requests(t *testing.T) {
	w := newEnvironment(t)
	up := w.serve("443", nil, "api.good.test", "other.good.test")
	b := w.newSandbox(oneHostPolicy)
	c := b.client(true)
	if code, _ := b.with(c, "GET", "https://api.good.test/", "", nil); code != 200 {
		t.Fatalf("an allowed request: got %d, want 200", code)
	}
	// A request on the open connection has another :authority.
	if code, body := b.with(c, "GET", "https://api.good.test/", "", http.Header{"Host": {"other.good.test"}}); code != 421 {
		t.Errorf("another :authority: got %d %s, want 421", code, body)
	}
	if code, _ := b.with(c, "CONNECT", "https://api.good.test/", "", nil); code == 200 {
		t.Errorf("CONNECT within HTTP/2: got %d, want a refusal", code)
	}
	if code, _ := b.with(c, "GET", "https://api.good.test/after", "", nil); code != 200 {
		t.Errorf("a further request: got %d, want 200", code)
	}
	if l := up.log(); len(l) != 2 || l[0].Proto != "HTTP/2.0" {
		t.Errorf("upstream got %+v, want two requests over HTTP/2", l)
	}
}

func TestEntriesOfDroppedPacketsAreLimited(t *testing.T) {
	w := newEnvironment(t)
	b := w.newSandbox(oneHostPolicy)
	started := time.Now()
	for range 1000 {
		b.Dropped("udp", netip.MustParseAddrPort("93.184.216.34:443"))
	}
	// On a slow machine the packets take several seconds.
	limit := (2+int(time.Since(started)/time.Second))*packetsPerSecond + 1
	l := b.records.all(egress.KindPacket)
	if len(l) == 0 || len(l) > limit {
		t.Errorf("%d entries for 1000 packets, want 1 to %d", len(l), limit)
	}
	if l[0].Rule != policy.RulePacket || l[0].Port != 443 || l[0].Method != "udp" {
		t.Errorf("the entry is %+v, want one of a UDP packet to port 443 by %s", l[0], policy.RulePacket)
	}
}

func TestRequestsWithSecretsAreRecordedFirst(t *testing.T) {
	w := newEnvironment(t)
	started := make(chan []egress.Record, 4)
	var b *testSandbox
	up := w.serve("443", func(http.ResponseWriter, *http.Request) {
		b.records.mu.Lock()
		defer b.records.mu.Unlock()
		started <- append([]egress.Record(nil), b.records.list...)
	}, "api.good.test")
	b = w.newSandbox(boundHost, withToken)
	keep := b.client(false)
	if code, _ := b.with(keep, "GET", "https://api.good.test/", "", nil); code != 200 {
		t.Fatalf("an allowed request: got %d, want 200", code)
	}
	list := <-started
	if last := list[len(list)-1]; !last.Begins || last.Kind != egress.KindHTTP || last.Secrets[0] != "TOKEN" {
		t.Errorf("when the request arrived, the last entry was %+v, want one about its beginning", last)
	}
	b.records.fail.Store(true)
	if code, body := b.with(keep, "GET", "https://api.good.test/", "", nil); code != 503 || !strings.Contains(body, policy.RuleRecord) {
		t.Errorf("a request whose entry cannot be written: got %d %s, want 503", code, body)
	}
	if len(up.log()) != 1 {
		t.Errorf("upstream got %d requests, want 1", len(up.log()))
	}
}

func TestBodyIsHeldInMemory(t *testing.T) {
	w := newEnvironment(t)
	b := w.newSandbox(askPolicy, func(c *Config) {
		c.Limits.Spool = 4 << 20
		c.SpoolFile = func() (*os.File, error) { return nil, os.ErrPermission }
	})
	s, err := b.holdBody(strings.NewReader(strings.Repeat("x", 3<<20)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.holdBody(strings.NewReader(strings.Repeat("x", 3<<20))); !errors.Is(err, errTooManyHeld) {
		t.Errorf("a body beyond the sandbox's limit: got %v, want errTooManyHeld", err)
	}
	if n, err := io.Copy(io.Discard, s.reader()); n != 3<<20 || err != nil {
		t.Errorf("the held body has %d bytes, %v, want 3 MiB", n, err)
	}
	s.Close()
	s.Close()
	if b.load.spooled.Load() != 0 {
		t.Error("Close did not release the bytes of the body")
	}
}
