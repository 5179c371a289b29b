package dev_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// applets are the programs of the image, all of which are busybox.
var applets = []string{"sh", "cat", "echo", "id", "env", "mkdir", "ln", "rmdir", "pwd", "httpd", "stty", "sleep"}

// importImage imports an image with the host's static busybox and no other program: no SFTP server,
// no bash, and no library.
func importImage(t *testing.T, u *user) {
	t.Helper()
	program, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	files := []imagetest.File{
		{Name: "bin/busybox", Content: string(program)}, {Name: "etc/passwd", Content: "root:x:0:0:root:/root:/bin/sh\napp:x:70:71::/srv:/bin/sh\n", Mode: 0o644},
		{Name: "srv/", UID: 70, GID: 71},
	}
	for _, a := range applets {
		files = append(files, imagetest.File{Name: "bin/" + a, Link: "busybox"})
	}
	img := imagetest.Image(t, v1.Config{Env: []string{"PATH=/bin"}, WorkingDir: "/srv"}, imagetest.Layer(t, files...))
	tag, err := name.NewTag("box:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(filepath.Join(u.home, "box.tar"), tag, img); err != nil {
		t.Fatal(err)
	}
	u.crannog(t, "image", "import", "box.tar")
}

// A development container has its user, variables and ports over SSH. Its workspaceFolder is a link
// to /workspace. If crannog dev is killed, the next crannog dev uses the same sandbox.
func TestDevContainerOverSSH(t *testing.T) {
	u := newUser(t)
	hosttest.Need(t, hosttest.Program("busybox"))
	importImage(t, u)
	port := freePort(t)
	dir := filepath.Join(u.home, "app")
	config := fmt.Sprintf(`{
		"image": "box:1", "remoteUser": "app", "workspaceFolder": "/code", "remoteEnv": {"GREETING": "hello"}, "containerEnv": {"FROM_CONTAINER": "x"},
		"mounts": ["source=cache,target=/cache,type=volume"], "forwardPorts": [%s], "portsAttributes": {"%[1]s": {"label": "web", "requireLocalPort": true}},
		"postStartCommand": "httpd -p 127.0.0.1:%[1]s -h /code"
	}`, port)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{".devcontainer.json": config, "file": "content\n"} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2 {
		e := u.open(t, "crannog-app", "dev", "--net", "none", "--ssh", "app")
		if got := e.inside(t, "id -un; pwd; echo $GREETING $FROM_CONTAINER; cat file"); got != "app\n/workspace\nhello x\ncontent\n" {
			t.Errorf("use %d: %q", i, got)
		}
		if got := e.must(t, "", "curl", "-sS", "--fail", "http://127.0.0.1:"+port+"/file"); got != "content\n" {
			t.Errorf("use %d: the forwarded port: %q", i, got)
		}
		e.must(t, "", "scp", "-q", "-F", e.config, "app/file", e.alias+":/srv/copied")
		if got := e.inside(t, "cat /srv/copied"); got != "content\n" {
			t.Errorf("use %d: scp wrote %q", i, got)
		}
		if !strings.Contains(e.stderr.String(), "127.0.0.1:"+port+" is port "+port+" of the sandbox (web)") {
			t.Errorf("use %d: crannog dev did not print the forwarded port: %s", i, e.stderr.String())
		}
		e.kill()
		if listens(port) {
			t.Error("the port is open after crannog dev was killed")
		}
		if err := os.Remove(e.config); err != nil {
			t.Fatal(err)
		}
	}
	// As with Docker, a new volume belongs to the image's user. That is root here, so app cannot
	// write to it.
	u.crannog(t, "exec", "--user", "root", strings.TrimSpace(u.crannog(t, "ls", "-q")), "--", "sh", "-c", "echo kept > /cache/file")
	if got := u.crannog(t, "dev", "--net", "none", "--no-forward", "--rebuild", "app", "--", "cat", "/cache/file"); got != "kept\n" {
		t.Errorf("the volume has %q in a new sandbox", got)
	}
	ids := strings.Fields(u.crannog(t, "ls", "-q"))
	if len(ids) != 1 {
		t.Fatalf("there are %d sandboxes", len(ids))
	}
	u.crannog(t, "rm", ids[0])
	servetest.NothingLeft(t, u.state, ids...)
}
