package upgrade_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/egress/certs"
)

// outsideHost is the only host outside. It stores the credentials of its requests.
const (
	outsideHost = "api.world.test"
	// outsideAddress is public, because no gateway dials an address of its own machine. The host is
	// therefore in another network namespace.
	outsideAddress = "93.184.1.1"
	outsideEnv     = "CRANNOG_UPGRADE_WORLD"
)

var outside struct {
	mu   sync.Mutex
	auth []string
}

// inNamespaces runs these tests again in new namespaces and returns their exit code.
func inNamespaces(old, program string) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cmd := exec.Command("unshare", slices.Concat([]string{"--net", "--mount", "--propagation", "private", "--", self}, os.Args[1:])...)
	cmd.Env = append(os.Environ(), outsideEnv+"="+old, "CRANNOG_TEST_PROGRAM="+program)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return cmd.ProcessState.ExitCode()
}

// startOutside creates the outside host. It must run in the new namespaces.
func startOutside(dir string) error {
	root, leaf, err := authority()
	if err != nil {
		return err
	}
	bundle, err := os.ReadFile(certs.BundlePath)
	if err != nil {
		return err
	}
	for target, data := range map[string][]byte{
		"/etc/hosts":     []byte("127.0.0.1 localhost\n" + outsideAddress + " " + outsideHost + "\n"),
		certs.BundlePath: append(bundle, root...),
	} {
		source := filepath.Join(dir, filepath.Base(target))
		if err := os.WriteFile(source, data, 0o644); err != nil {
			return err
		}
		if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	thread, listening := make(chan int), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread stays in the other namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			listening <- err
			return
		}
		thread <- unix.Gettid()
		<-thread
		if err := ip("link set lo up", "addr add "+outsideAddress+"/24 dev far", "link set far up"); err != nil {
			listening <- err
			return
		}
		l, err := net.Listen("tcp", outsideAddress+":443")
		listening <- err
		if err == nil {
			serveOutside(l, leaf)
		}
	}()
	select {
	case err := <-listening:
		return err
	case id := <-thread:
		err := ip("link set lo up", "link add near type veth peer name far netns "+strconv.Itoa(id), "addr add 93.184.1.254/24 dev near",
			"link set near up", "route add default via "+outsideAddress)
		if err != nil {
			return err
		}
		thread <- 0
	}
	return <-listening
}

// ip runs commands of ip(8).
func ip(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return errors.Join(fmt.Errorf("ip %s: %s", line, out), err)
		}
	}
	return nil
}

// serveOutside answers requests to outsideHost and stores their credentials.
func serveOutside(l net.Listener, leaf tls.Certificate) {
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), TLSConfig: &tls.Config{Certificates: []tls.Certificate{leaf}},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			outside.mu.Lock()
			outside.auth = append(outside.auth, r.Header.Get("Authorization"))
			outside.mu.Unlock()
			_, _ = io.WriteString(w, "hello from outside")
		})}
	_ = server.ServeTLS(l, "", "")
}

// authority creates a certificate for outsideHost, which is its own root.
func authority() (root []byte, leaf tls.Certificate, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, leaf, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the outside's"}, IsCA: true, BasicConstraintsValid: true, DNSNames: []string{outsideHost},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

// requireSecretSent makes a request from a sandbox whose policy binds the secret. It checks that
// outsideHost gets the value, and that the sandbox does not have it.
func requireSecretSent(t *testing.T, what string, sb *crannog.Sandbox) {
	t.Helper()
	outside.mu.Lock()
	before := len(outside.auth)
	outside.mu.Unlock()
	if got := output(t, sb, "curl -sS -m 300 https://"+outsideHost+"/"); got != "hello from outside" {
		t.Errorf("%s: the outside host answered %q", what, got)
	}
	if got := output(t, sb, "env"); !strings.Contains(got, "TOKEN=") || strings.Contains(got, secretValue) {
		t.Errorf("%s: the sandbox's environment is %s", what, got)
	}
	outside.mu.Lock()
	defer outside.mu.Unlock()
	if got := outside.auth[before:]; len(got) != 1 || got[0] != "Bearer "+secretValue {
		t.Errorf("%s: the outside host got the credentials %q", what, got)
	}
}
