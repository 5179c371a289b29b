package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/egress/attachment/attachmenttest"
	"github.com/crannog/crannog/internal/fault"
)

const kernelArg0 = "test-kernel-box"

// runKernelPeer uses a network like an ordinary Go program, and prints the results.
func runKernelPeer() {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, net.JoinHostPort(egress.Gateway.String(), "53"))
	}}
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{Resolver: resolver}).DialContext}}
	for _, url := range os.Args[1:] {
		r, err := client.Get(url)
		if err != nil {
			fmt.Println(url, "failed")
			continue
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		fmt.Println(url, r.StatusCode, len(body))
	}
}

// The policy and the flow entries for a sandbox on a kernel's TUN or TAP device, or on a socket of
// Ethernet frames, are the same as for one on packets. The test uses the confined process, with and
// without root.
func TestKernelNetworkAppliesPolicy(t *testing.T) {
	for _, form := range []attachmenttest.Form{attachmenttest.TUN, attachmenttest.TAP, attachmenttest.Datagrams, attachmenttest.Stream} {
		for _, rootless := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/rootless=%v", form, rootless), func(t *testing.T) { checkKernelPolicy(t, form, rootless) })
		}
	}
}

func checkKernelPolicy(t *testing.T, form attachmenttest.Form, rootless bool) {
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	link, k := attachmenttest.StartKernel(t, form, rootless, 1500, "/proc/self/exe", kernelArg0,
		"http://api.test/hello", "http://other.test/", "http://93.184.216.34:81/")
	a := testAttachment(t, dir, "box1")
	a.Kind, a.Link = form.Kind(), link
	sb, _, err := c.Attach(t.Context(), a)
	if err != nil || sb != nil {
		t.Fatalf("Attach returned %v %v, want no end and no error", sb, err)
	}
	link.Close()
	k.Go()
	got, err := k.Wait()
	want := []string{"http://api.test/hello 200 6", "http://other.test/ failed", "http://93.184.216.34:81/ failed"}
	if lines := strings.Split(strings.TrimSpace(got), "\n"); err != nil || !slices.Equal(lines, want) {
		t.Fatalf("the program in the sandbox: %v\n%s", err, got)
	}
	if err := c.Detach(t.Context(), "box1"); err != nil {
		t.Fatal(err)
	}
	records := readRecords(t, dir, "box1")
	for what, matches := range map[string]func(egress.Record) bool{
		"the request": func(r egress.Record) bool {
			return r.Kind == egress.KindHTTP && r.Host == "api.test" && r.Path == "/hello" && r.Status == 200 && r.Effect == egress.Allow
		},
		"the name that is denied": func(r egress.Record) bool {
			return r.Kind == egress.KindDNS && r.Host == "other.test" && r.Effect == egress.Deny
		},
		"the address that is denied": func(r egress.Record) bool {
			return r.Port == 81 && r.Effect == egress.Deny
		},
	} {
		if !slices.ContainsFunc(records, matches) {
			t.Errorf("no flow entry of %s in %+v", what, records)
		}
	}
	if left, err := c.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("attached sandboxes after Detach: %v %v, want none", left, err)
	}
}

// A gateway end of the wrong kind is rejected, and leaves no attachment.
func TestAttachRejectsWrongKind(t *testing.T) {
	dir := newEnvironment(t)
	c := mustConnect(t, dir, Options{})
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, wrong := range []Attachment{
		{Kind: egress.Tap}, {Kind: egress.Tap, Link: null}, {Kind: egress.Ethernet, Link: null}, {Kind: egress.None, Link: null}, {Kind: "carrier-pigeon", Link: null},
	} {
		a := testAttachment(t, dir, "box1")
		a.Kind, a.Link = wrong.Kind, wrong.Link
		if sb, _, err := c.Attach(t.Context(), a); err == nil || sb != nil {
			t.Errorf("Attach accepted a descriptor of the wrong kind %q: %v", wrong.Kind, sb)
		}
	}
	if left, err := c.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("attached sandboxes: %v %v, want none", left, err)
	}
	wantGet(t, mustAttach(t, c, dir, "box1"), "/hello", 200)
}

// A process of an earlier version supports only packets. For these it does not get the field; other
// kinds are an error.
func TestEarlierProcessSupportsOnlyPackets(t *testing.T) {
	old := &Client{version: withKinds - 1}
	for _, kind := range []egress.AttachmentKind{"", egress.Packets} {
		sb, ours, sent, err := old.ends(Attachment{Kind: kind})
		if err != nil || sent != "" {
			t.Fatalf("%q is sent as %q: %v", kind, sent, err)
		}
		sb.Close()
		ours.Close()
	}
	if _, _, _, err := old.ends(Attachment{Kind: egress.Tap, Link: os.Stdin}); fault.CodeOf(err) != "causeway_version" {
		t.Errorf("a Tap for an earlier process: got %v, want causeway_version", err)
	}
	if _, ours, sent, err := (&Client{version: withKinds}).ends(Attachment{Kind: egress.Tap, Link: os.Stdin}); err != nil || ours != os.Stdin || sent != egress.Tap {
		t.Errorf("control: a Tap for a current process: got %v %q %v", ours, sent, err)
	}
}
