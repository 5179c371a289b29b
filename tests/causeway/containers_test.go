package causeway_test

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// containersVariable is the environment variable with which make test-containers runs
// TestContainersInside. Its value is "build", or the archive of an image that was built from the
// recipe before.
const containersVariable = "CRANNOG_TEST_CONTAINERS"

// recipeImage is the name of the image of the recipe images/docker.
const recipeImage = "recipe:docker"

// registryHost is a registry of the fake internet, and pageHost a web server.
const (
	registryHost = "registry.containers.test"
	pageHost     = "page.containers.test"
)

// containersPolicy permits the two hosts, and pulls through the cache except of one repository.
const containersPolicy = `
policy: v1
name: containers
level: minimal
network:
  unlisted: deny
  hosts:
    - {host: ` + registryHost + `, rules: [{do: allow}]}
    - {host: ` + pageHost + `, rules: [{methods: [GET], do: allow}]}
packages:
  cache: [oci]
  registries: [{host: ` + registryHost + `, ecosystem: oci}]
  deny: ["oci:` + registryHost + `/team/denied"]
`

// TestContainersInside (P72) uses Docker, Compose and Podman in sandboxes of the recipe images/docker.
func TestContainersInside(t *testing.T) {
	from := os.Getenv(containersVariable)
	if from == "" {
		t.Skip("takes minutes; make test-containers runs it")
	}
	hosttest.Need(t, hosttest.Root)
	state := hosttest.ShortDir(t)
	makeRecipeImage(t, state, from)
	w, err := newInternet()
	if err != nil {
		t.Fatal(err)
	}
	a := &environment{internet: w, state: state}
	a.client = local(t, state, w)
	var ids []string
	t.Cleanup(func() {
		if err := a.client.Close(); err != nil {
			t.Error(err)
		}
		if err := awaitCauseway(state); err != nil {
			t.Error(err)
		}
		servetest.NothingLeft(t, state, ids...)
	})
	stored := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	images := a.web(t, 443, stored.ServeHTTP, registryHost)
	a.web(t, 443, nil, pageHost)

	b := a.containerSandbox(t, crannog.Containers())
	ids = append(ids, b.Info().ID)
	if !b.Info().Containers {
		t.Error("the sandbox does not show that containers are on")
	}
	script, err := os.ReadFile("testdata/mkroot.sh")
	if err != nil {
		t.Fatal(err)
	}
	b.must(string(script))
	t.Run("docker", func(t *testing.T) { testDocker(t, b) })
	t.Run("compose", func(t *testing.T) { testCompose(t, b) })
	t.Run("pull", func(t *testing.T) { testPulls(t, b, images, stored) })
	t.Run("podman", func(t *testing.T) { testPodman(t, b, images) })
	t.Run("storage on the disk", func(t *testing.T) { testDiskStorage(t, b) })

	plain := a.containerSandbox(t)
	ids = append(ids, plain.Info().ID)
	if out, code := plain.sh("docker info"); code != 1 || !contains(out, "containers are off in this sandbox; create it with --containers") {
		t.Errorf("without containers: exit %d, %s", code, out)
	}
	b.end()
	plain.end()
}

// makeRecipeImage adds the image of the recipe to a state directory. It builds it on a Debian from
// the real mirror, or imports an archive.
func makeRecipeImage(t *testing.T, state, from string) {
	t.Helper()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program(t), append([]string{"--state", state}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("crannog %v: %v\n%s", args, err, out)
		}
	}
	if from != "build" {
		run("image", "import", from, "--name", recipeImage)
		return
	}
	const mirror = "deb.debian.org"
	// A mirror may have a private address, which has to be listed.
	addresses, err := net.DefaultResolver.LookupNetIP(t.Context(), "ip4", mirror)
	if err != nil {
		t.Fatal(err)
	}
	var cidrs []string
	for _, address := range addresses {
		cidrs = append(cidrs, netip.PrefixFrom(address.Unmap(), 32).String())
	}
	document := filepath.Join(t.TempDir(), "policy.yaml")
	text := fmt.Sprintf("policy: v1\nnetwork: {unlisted: deny, hosts: [{host: %s, ports: [80], cidrs: [%s], rules: [{methods: [GET, HEAD], paths: [/debian/**], do: allow}]}]}\n",
		mirror, strings.Join(cidrs, ", "))
	if err := os.WriteFile(document, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run("image", "bootstrap", "--mirror", "http://"+mirror+"/debian/", "-t", "debian:test", "--include", "login", "--progress", "plain")
	run("template", "build", "-t", recipeImage, "--build-arg", "BASE=debian:test", "--policy", document, "--net", "policy", "--progress", "plain", "../../images/docker")
	// The gateway of the build uses the host's names. One that knows the test's names must start.
	if err := awaitCauseway(state); err != nil {
		t.Fatal(err)
	}
}

// containerSandbox creates a sandbox of the recipe.
func (a *environment) containerSandbox(t *testing.T, options ...crannog.CreateOption) *testSandbox {
	t.Helper()
	limits := api.Limits{MemoryBytes: 3 << 30, CPUMillis: 2000, PIDs: 1024, DiskBytes: 6 << 30, CommandTimeoutSeconds: 1800}
	sb, err := a.client.Create(t.Context(), append([]crannog.CreateOption{
		crannog.Image(recipeImage), crannog.Limits(limits), crannog.Timeout(5 * time.Hour), crannog.Policy(containersPolicy), crannog.Net("policy"),
	}, options...)...)
	if err != nil {
		t.Fatalf("create a sandbox: %v\n%s", err, a.logs())
	}
	b := &testSandbox{Sandbox: sb, t: t, environment: a}
	t.Cleanup(b.end)
	return b
}

// checkLine runs a shell line, whose output must end with a text.
func checkLine(t *testing.T, b *testSandbox, what, line, want string) {
	t.Helper()
	if out, code := b.sh(line); code != 0 || !strings.HasSuffix(out, want) {
		t.Errorf("%s: exit %d, got %q, want %q at its end", what, code, out, want)
	}
}

// testDiskStorage changes the storage driver, whose images are apart from those of the other one.
func testDiskStorage(t *testing.T, b *testSandbox) {
	stop := "sudo pkill -x dockerd; while pgrep -x dockerd >/dev/null; do sleep 0.1; done; "
	checkLine(t, b, "vfs", stop+"start-docker vfs && docker info --format '{{.Driver}}' && tar c -C root . | docker import - base:2 >/dev/null && docker run --rm base:2 id -u", "vfs\n0")
	checkLine(t, b, "overlay2 again", stop+"docker info --format '{{.Driver}}' && docker image ls -q base:2 | grep -c . || true", "overlay2\n0")
}

// roots is the number of variables with the roots in a container.
const roots = "13"

func testDocker(t *testing.T, b *testSandbox) {
	checkLine(t, b, "the driver", "docker info --format '{{.Driver}}'", "overlay2")
	checkLine(t, b, "import", "tar c -C root . | docker import - base:1 >/dev/null && docker run --rm base:1 sh -c 'id -u; cat /proc/1/comm'", "0\nsh")
	checkLine(t, b, "build", "docker build -q -t app:1 app >/dev/null && docker run --rm app:1", "0\n"+roots)
	checkLine(t, b, "nothing of the roots is in the image", "docker run --rm --entrypoint sh app:1 -c 'set -- /dev/sandbox*; echo $#'; docker save app:1 | tar tf - >/dev/null && docker export $(docker create app:1) | tar tf - | grep -c sandbox-roots || true", "1\n0")
	checkLine(t, b, "a decrypted connection", "docker run --rm base:1 curl -sS https://"+pageHost+"/", "hello from "+pageHost)
	checkLine(t, b, "the policy applies", "docker run --rm base:1 curl -sS https://other.containers.test/ >/dev/null 2>&1 || echo refused", "refused")
	checkLine(t, b, "the host's network is the sandbox's", "docker run --rm --network host base:1 cat /proc/sys/kernel/hostname; cat /proc/sys/kernel/hostname | grep -c .", "1")
}

func testCompose(t *testing.T, b *testSandbox) {
	out, code := b.sh("cd compose && docker compose up --exit-code-from ask 2>&1; code=$?; docker compose down >/dev/null 2>&1; exit $code")
	if code != 0 || !contains(out, "from the web service") {
		t.Errorf("docker compose up: exit %d, %s", code, out)
	}
	// Docker's proxy accepts connections before the service does, and then resets them.
	checkLine(t, b, "a published port", "cd compose && docker-compose up -d web >/dev/null 2>&1 && curl -s --retry 20 --retry-all-errors http://127.0.0.1:8080/page; docker-compose down >/dev/null 2>&1; docker ps -q | grep -c . || true", "from the web service\n0")
}

// blobReads counts the downloads of blobs from the registry.
func blobReads(images *web) (n int) {
	for _, r := range images.seen() {
		if r.Method == http.MethodGet && strings.Contains(r.Path, "/blobs/") {
			n++
		}
	}
	return n
}

// copyImage gives an image of a registry another name, without a sandbox.
func copyImage(t *testing.T, stored http.Handler, from, to string) {
	t.Helper()
	s := httptest.NewServer(stored)
	defer s.Close()
	at := func(image string) name.Reference {
		ref, err := name.ParseReference(strings.TrimPrefix(s.URL, "http://")+"/"+image, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	img, err := remote.Image(at(from))
	if err == nil {
		err = remote.Write(at(to), img)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func testPulls(t *testing.T, b *testSandbox, images *web, stored http.Handler) {
	const image = registryHost + "/team/base:1"
	checkLine(t, b, "push", "docker tag base:1 "+image+" && docker push -q "+image, image)
	copyImage(t, stored, "team/base:1", "team/denied:1")
	pull := "docker rmi " + image + " base:1 app:1 compose_ask >/dev/null 2>&1; docker rmi -f $(docker images -q) >/dev/null 2>&1; docker pull -q " + image + " && docker run --rm " + image + " id -u"
	checkLine(t, b, "first pull", pull, image+"\n0")
	first := blobReads(images)
	if first == 0 {
		t.Errorf("the first pull fetched no blob: %d", first)
	}
	checkLine(t, b, "second pull", pull, image+"\n0")
	if again := blobReads(images) - first; again != 0 {
		t.Errorf("the second pull fetched %d blobs from the registry, want none", again)
	}
	if out, code := b.sh("docker pull " + registryHost + "/team/denied:1 2>&1"); code == 0 {
		t.Errorf("an image that the policy denies was pulled: %s", out)
	}
	b.awaitFlow("the refused pull", func(r api.FlowRecord) bool {
		return r.Host == registryHost && r.Effect == "deny" && r.Rule == policy.RuleForbidden && strings.Contains(r.Path, "/team/denied/")
	})
}

func testPodman(t *testing.T, b *testSandbox, images *web) {
	before := blobReads(images)
	checkLine(t, b, "run without root", "(tar c -C root . | podman import -q - localhost/base:1 >/dev/null && podman run --rm --user 5 localhost/base:1 id -u) 2>/dev/null", "5")
	checkLine(t, b, "root of the container is the user", "podman unshare cat /proc/self/uid_map | tr -s ' ' | grep -c '^ 0 1000 1$'", "1")
	checkLine(t, b, "build without root", "podman build -q -t app:1 app -f app/Containerfile >/dev/null && podman run --rm app:1", "0\n"+roots)
	checkLine(t, b, "a decrypted connection", "podman run --rm localhost/base:1 curl -sS https://"+pageHost+"/", "hello from "+pageHost)
	checkLine(t, b, "pull without root", "podman pull -q "+registryHost+"/team/base:1 >/dev/null && podman run --rm "+registryHost+"/team/base:1 id -u", "0")
	if again := blobReads(images) - before; again != 0 {
		t.Errorf("Podman's pull fetched %d blobs from the registry, want none", again)
	}
	checkLine(t, b, "run as root", "tar c -C root . | sudo podman import -q - localhost/base:1 >/dev/null && sudo podman run --rm localhost/base:1 id -u", "0")
}
