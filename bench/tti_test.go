package main

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// request returns a start request as the SDK sends it.
func request(argv ...string) []byte {
	message := `{"process":{"cmd":"` + argv[0] + `","args":["` + strings.Join(argv[1:], `","`) + `"],"envs":{}},"stdin":false}`
	return append([]byte{0, 0, 0, 0, byte(len(message))}, message...)
}

func TestStartedCommand(t *testing.T) {
	got, err := startedCommand(bytes.NewReader(request("/bin/bash", "-l", "-c", "node -v")))
	if err != nil || !slices.Equal(got, []string{"/bin/bash", "-l", "-c", "node -v"}) {
		t.Errorf("startedCommand: got %q, %v", got, err)
	}
	for _, bad := range []string{"", "\x00\x00", "\x00\x00\x00\x00\x02{}", "\x00\x00\x00\x00\x09{\"process\"", string(request(""))} {
		if got, err := startedCommand(strings.NewReader(bad)); err == nil {
			t.Errorf("%q gave %q", bad, got)
		}
	}
}

func TestStubRunsOnlyConfiguredCommands(t *testing.T) {
	nothing, err := newStubServer(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer nothing.close()
	runs, err := newStubServer(func(argv ...string) []string { return argv })
	if err != nil {
		t.Fatal(err)
	}
	defer runs.close()
	ask := func(a *stubServer) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.url+"/process.Process/Start", bytes.NewReader(request("/bin/sh", "-c", "echo it ran; exit 3")))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := new(http.Client).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	const ran = `{"event":{"data":{"stdout":"aXQgcmFuCg=="}}}` // "it ran\n"
	if got := ask(runs); !strings.Contains(got, ran) || !strings.Contains(got, `"exitCode":3`) {
		t.Errorf("a server that runs commands: got %q, want the output and exit code 3", got)
	}
	if got := ask(nothing); strings.Contains(got, ran) || !strings.Contains(got, `"exitCode":0`) {
		t.Errorf("a server that runs no commands: got %q, want no output and exit code 0", got)
	}
}

func TestParseProcessTime(t *testing.T) {
	got, err := parseProcessTime("12 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 100 20 3 1 20 0")
	if err != nil || got != 1240*time.Millisecond {
		t.Errorf("parseProcessTime: got %v, %v, want 1.24s", got, err)
	}
	for _, bad := range []string{"", "12 (a) S 1 2", "12 (a) S 1 2 3 4 5 6 7 8 9 10 x 20 3 1"} {
		if got, err := parseProcessTime(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
}
