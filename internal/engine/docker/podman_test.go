package docker_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/engine/docker"
	"github.com/crannog/crannog/internal/fault"
)

// Podman answers as a Docker Engine does, and would leave out a part of the protection. It is
// refused before anything is created. The control is the same server with another name.
func TestPodmanIsRefused(t *testing.T) {
	for name, code := range map[string]string{"Podman Engine": "podman_unsupported", "Engine": "engine_failed"} {
		var requests []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Api-Version", "1.41")
			switch {
			case strings.HasSuffix(r.URL.Path, "/_ping"):
				_, _ = io.WriteString(w, "OK")
			case strings.HasSuffix(r.URL.Path, "/version"):
				_, _ = io.WriteString(w, `{"Version":"4.3.1","ApiVersion":"1.41","Components":[{"Name":"`+name+`","Version":"4.3.1"}]}`)
			case strings.HasSuffix(r.URL.Path, "/info"):
				_, _ = io.WriteString(w, `{"OSType":"linux","DefaultRuntime":"crun","Runtimes":{"crun":{"path":"crun"}},"SecurityOptions":["name=seccomp,profile=default"],"MemoryLimit":true,"CpuCfsQuota":true,"PidsLimit":true}`)
			default:
				requests = append(requests, r.Method+" "+r.URL.Path)
				w.WriteHeader(http.StatusTeapot)
				_, _ = io.WriteString(w, `{"message":"not here"}`)
			}
		}))
		defer server.Close()
		e, err := docker.New(docker.Options{StateDir: t.TempDir(), Host: strings.Replace(server.URL, "http://", "tcp://", 1), Guest: os.Args[0]})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		err = e.Create(t.Context(), engine.Spec{ID: "box1", Image: engine.Image{OCI: &engine.OCI{Ref: "x", Digest: "sha256:00"}, Guest: guestPath}})
		if fault.CodeOf(err) != code || (code == "podman_unsupported") != (len(requests) == 0) {
			t.Errorf("%s: create: %v, after %q", name, err, requests)
		}
		refused := engine.Refusal(e.Probe(t.Context()))
		if podman := code == "podman_unsupported"; podman != (refused != nil) || podman && fault.CodeOf(refused) != code {
			t.Errorf("%s: probe: %v", name, refused)
		}
	}
}
