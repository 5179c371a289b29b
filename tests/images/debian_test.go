// Package images_test starts sandboxes from a real Debian image, as root and as another user, and
// does common tasks in them. They reach Debian's mirror through the egress gateway.
package images_test

import (
	"bytes"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// program is the path of the tested program.
var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

// mirror is the host of Debian's packages, and npmRegistry of those of Node.js.
const (
	mirror      = "deb.debian.org"
	npmRegistry = "registry.npmjs.org"
)

// unprivileged is the ID of a user who owns nothing on this machine.
const unprivileged = hosttest.Unprivileged

// debian creates the archive of a Debian image with the usual programs.
func debian(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	root := filepath.Join(dir, "root.tar")
	cmd := exec.CommandContext(t.Context(), "mmdebstrap", "--quiet", "--variant=minbase", "--include=sudo,passwd,login", "bookworm", root)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mmdebstrap: %v\n%s", err, out)
	}
	data, err := os.ReadFile(root)
	if err != nil {
		t.Fatal(err)
	}
	const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	img := imagetest.Image(t, v1.Config{Env: []string{path, "GREETING=from the image"}, WorkingDir: "/srv", Cmd: []string{"sh", "-c", "echo $GREETING in $PWD as $(id -un)"}},
		data, imagetest.Layer(t,
			// The default file names hosts that the policy does not list.
			imagetest.File{Name: "etc/apt/sources.list", Content: "deb http://" + mirror + "/debian bookworm main\n", Mode: 0o644},
			imagetest.File{Name: "etc/sudoers.d/user", Content: "user ALL=(ALL) NOPASSWD:ALL\n", Mode: 0o440},
			imagetest.File{Name: "srv/", UID: 33, GID: 33}, imagetest.File{Name: "srv/page", Content: "page", Mode: 0o600, UID: 33, GID: 33}))
	tag, err := name.NewTag("debian:test")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "debian.tar")
	if err := tarball.WriteToFile(file, tag, img); err != nil {
		t.Fatal(err)
	}
	return file
}

// mirrorPolicy returns a policy that permits reading packages and nothing else.
func mirrorPolicy(t *testing.T) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{"policy": "v1", "network": map[string]any{"hosts": []any{
		reading(t, mirror, 80, "/debian/**"), reading(t, npmRegistry, 443, "/node-linux-*/-/*", "/npm/-/*"),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// reading permits a policy's sandbox to read paths of a host. It lists the host's addresses, because
// a company's own mirror may have private ones.
func reading(t *testing.T, host string, port int, paths ...string) map[string]any {
	t.Helper()
	addresses, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip4", host)
	if err != nil {
		t.Fatal(err)
	}
	var cidrs []string
	for _, a := range addresses {
		cidrs = append(cidrs, netip.PrefixFrom(a.Unmap(), 32).String())
	}
	return map[string]any{
		"host": host, "ports": []int{port}, "cidrs": cidrs,
		"rules": []any{map[string]any{"do": "allow", "methods": []string{"GET", "HEAD"}, "paths": paths}},
	}
}

// machine is a user with a copy of the program and a state directory.
type machine struct {
	dir    string
	user   *syscall.Credential
	policy string
}

// newMachine creates a machine for the user with an ID.
func newMachine(t *testing.T, uid int) *machine {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "crannog-images-")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{dir: dir, policy: filepath.Join(dir, "policy.json")}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(m.policy, []byte(mirrorPolicy(t)), 0o644); err != nil {
		t.Fatal(err)
	}
	// Only root may enter the directory of the tests' program, so it is copied.
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "crannog"), data, 0o755); err != nil {
		t.Fatal(err)
	}
	if uid != 0 {
		m.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
		if err := os.Chown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func (m *machine) state() string { return filepath.Join(m.dir, "state") }

// run runs a command of the program as the machine's user, with a file as its standard input.
func (m *machine) run(t *testing.T, input string, args ...string) (out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(m.dir, "crannog"), append([]string{"--state", m.state()}, args...)...)
	cmd.Dir = m.dir
	cmd.Env = []string{"HOME=" + m.dir, "TMPDIR=" + m.dir, "PATH=/usr/local/bin:/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.user}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if input != "" {
		f, err := os.Open(input)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.Stdin = f
	}
	err = cmd.Run()
	return output.String(), err
}

// recipe copies a directory of images/ to where the machine's user may read it.
func (m *machine) recipe(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(m.dir, name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("../../images", name))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inside runs a shell line in a sandbox of the image.
func (m *machine) inside(t *testing.T, line string, flags ...string) (string, error) {
	t.Helper()
	args := append([]string{"run", "--no-workspace", "--image", "debian:test", "--pull", "never"}, flags...)
	return m.run(t, "", append(args, "--", "sh", "-ec", line)...)
}

// tasks are common tasks in an image, with the expected last lines of their output.
var tasks = []struct {
	what, line string
	flags      []string
	want       string
}{
	{"owners are the image's", `stat -c '%U:%G %a %n' /etc/shadow /srv/page /usr/bin/sudo /var/mail /home/user`, nil,
		"root:shadow 640 /etc/shadow\nwww-data:www-data 600 /srv/page\nroot:root 4755 /usr/bin/sudo\nroot:mail 2775 /var/mail\nuser:user 755 /home/user\n"},
	{"permissions are enforced", `su -s /bin/sh www-data -c 'cat /srv/page; echo; cat /etc/shadow 2>/dev/null || echo refused'`, nil, "page\nrefused\n"},
	{"accounts", `useradd -m bob && echo bob:secret | chpasswd && su - bob -c 'id -un; touch mine; stat -c %U mine' && userdel -r bob 2>/dev/null && ! id bob 2>/dev/null`, nil, "bob\nbob\n"},
	{"su and sudo", `su user -c 'id -un; sudo id -un; sudo -u www-data id -un'`, nil, "user\nroot\nwww-data\n"},
	{"a set-user-ID program of the user", `cp /usr/bin/id /usr/local/bin/whose && chmod 4755 /usr/local/bin/whose && su user -c '/usr/local/bin/whose -un'`, nil, "root\n"},
	{"no root under strict", `id -un; sudo -n id 2>&1 | grep -o 'no new privileges' | head -n 1`, []string{"--level", "strict"}, "user\nno new privileges\n"},
	{"no files of the host", `for f in /work /usr/bin/mmdebstrap /usr/local/go /var/lib/crannog; do test ! -e $f || echo $f; done; grep -c . /etc/hostname`, nil, "1\n"},
	{"no network without a policy", `timeout 60 apt-get -o Acquire::Retries=0 update 2>&1 | grep -c 'Failed to fetch\|^Err' >/dev/null && echo refused`, nil, "refused\n"},
}

func TestDebian(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program("mmdebstrap"))
	file := debian(t)
	for who, uid := range map[string]int{"root": 0, "without root": unprivileged} {
		t.Run(who, func(t *testing.T) {
			m := newMachine(t, uid)
			if out, err := m.run(t, file, "image", "import", "-"); err != nil {
				t.Fatalf("import: %v\n%s", err, out)
			}
			for _, task := range tasks {
				if out, err := m.inside(t, task.line, task.flags...); err != nil || !strings.HasSuffix(out, task.want) {
					t.Errorf("%s: %v, got %q, want %q at its end", task.what, err, out, task.want)
				}
			}
			if out, err := m.run(t, "", "run", "--no-workspace", "--image", "debian:test"); err != nil || out != "from the image in /srv as root\n" {
				t.Errorf("the image's own command: %v %q", err, out)
			}
			// Install a package from the real mirror.
			out, err := m.inside(t, `su - user -c 'sudo apt-get -q update && sudo apt-get install -qy --no-install-recommends hello' && hello`, "--policy", m.policy)
			if err != nil || !strings.HasSuffix(out, "Hello, world!\n") {
				t.Errorf("apt-get install: %v\n%s", err, out)
			}
			// Hosts that the policy does not list stay unreachable, and the output names the
			// denial.
			if out, err := m.inside(t, `echo deb http://example.com/debian bookworm main >/etc/apt/sources.list; timeout 60 apt-get -q -o Acquire::Retries=0 update 2>&1 | grep -q '^Err' && echo refused`, "--policy", m.policy); err != nil || !strings.Contains(out, "refused\n") || !strings.Contains(out, "blocked GET http://example.com/") {
				t.Errorf("another mirror: %v %q", err, out)
			}
		})
	}
}
