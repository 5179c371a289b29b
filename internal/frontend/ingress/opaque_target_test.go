package ingress_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/guest/guestboot"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// TestOpaqueTargetIsRejected checks request targets that only the guest would parse as a path. They
// must not bypass the check of reserved paths (P12).
func TestOpaqueTargetIsRejected(t *testing.T) {
	w := newTestProxy(t)
	reached := make(chan string, 10)
	w.serve(boxID, guestboot.Port, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.URL.Path }))
	get := func(target string) int {
		t.Helper()
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.front.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(hosttest.Deadline())
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %d\r\n\r\n", target, boxID, guestboot.Port)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := get("http://x/health"); got != http.StatusOK || <-reached != "/health" {
		t.Fatalf("control: %d", got)
	}
	for _, target := range []string{"x:http://x/_crannog/ready", "http:_crannog/ready", "x:y"} {
		if got := get(target); got != http.StatusBadRequest {
			t.Errorf("%s: %d", target, got)
		}
	}
	if len(reached) > 0 {
		t.Errorf("the guest got %s", <-reached)
	}
}
