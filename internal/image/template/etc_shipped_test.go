package template

import (
	"crypto/md5"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/fault"
)

// fakeEtc creates a host with files of /etc. Its dpkg lists the files in shipped as unchanged.
func fakeEtc(t *testing.T, files map[string]string, shipped ...string) string {
	t.Helper()
	root := t.TempDir()
	var status strings.Builder
	status.WriteString("Package: some\nConffiles:\n")
	for name, text := range files {
		full := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(shipped, name) {
			fmt.Fprintf(&status, " %s %x\n", name, md5.Sum([]byte(text)))
		}
	}
	for dir, text := range map[string]string{"usr/bin": "", "var/lib/dpkg": status.String() + "Description: x\n"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(filepath.Join(root, dir, "status"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return root
}

// example returns a name that a pattern matches.
func example(pattern string) string { return "/etc/" + strings.ReplaceAll(pattern, "*", "example") }

// F30: each entry is shown only if its file is unchanged.
func TestF30EntriesAreShownOnlyUnchanged(t *testing.T) {
	for _, s := range packageEtc {
		t.Run(s.pkg, func(t *testing.T) {
			files, names := map[string]string{}, []string{}
			for _, pattern := range s.paths {
				if strings.Contains(pattern, "..") || path.IsAbs(pattern) || never("/etc/"+strings.ReplaceAll(pattern, "*", "x")) {
					t.Fatalf("%s may not be shown", pattern)
				}
				name := example(pattern)
				names, files[name] = append(names, name), "shipped "+name
			}
			p, err := planHost(fakeEtc(t, files, names...))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if got := string(p.files[name].data); got != files[name] {
					t.Errorf("%s: got %q, want %q", name, got, files[name])
				}
			}
			if p, err = planHost(fakeEtc(t, files)); err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if f, shown := p.files[name]; shown {
					t.Errorf("the changed file %s is shown: %q", name, f.data)
				}
			}
		})
	}
}

// The list agrees with the packages of this machine.
func TestF30EntriesMatchInstalledPackages(t *testing.T) {
	checked := 0
	for _, s := range packageEtc {
		list, err := os.ReadFile("/var/lib/dpkg/info/" + s.pkg + ".conffiles")
		if err != nil {
			if list, err = os.ReadFile("/var/lib/dpkg/info/" + s.pkg + ":" + dpkgArchitecture() + ".conffiles"); err != nil {
				continue
			}
		}
		checked++
		for _, pattern := range s.paths {
			if strings.Contains(pattern, "enabled/") || strings.Contains(pattern, "rt_*.d") {
				continue // links that a package's installation makes, or files of other versions
			}
			if !slices.ContainsFunc(strings.Fields(string(list)), func(name string) bool {
				matched, _ := path.Match("/etc/"+pattern, name)
				return matched
			}) {
				t.Errorf("%s does not ship /etc/%s but %s", s.pkg, pattern, list)
			}
		}
	}
	t.Logf("%d of %d packages are on this machine", checked, len(packageEtc))
}

func dpkgArchitecture() string {
	matches, _ := filepath.Glob("/var/lib/dpkg/info/libc6:*.list")
	if len(matches) == 0 {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(matches[0]), "libc6:"), ".list")
}

// secretEtc are files of /etc that no sandbox sees. In the tests every user can read them, as after
// a mistake of an administrator.
var secretEtc = []string{
	"/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/passwd-", "/etc/sudoers", "/etc/sudoers.d/admin", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssl/private/x.crt",
	"/etc/nginx/tls.key", "/etc/nginx/cert.pem", "/etc/nginx/.htpasswd", "/etc/apache2/htpasswd.users", "/etc/wireguard/wg0.conf", "/etc/openvpn/client.conf",
	"/etc/letsencrypt/live/x", "/etc/krb5.keytab", "/etc/machine-id", "/etc/fstab", "/etc/mysql/debian.cnf", "/etc/docker/config.json", "/etc/chromium.d/apikeys",
	"/etc/NetworkManager/system-connections/home", "/etc/app/secrets.yml", "/etc/app/API_TOKEN", "/etc/crannog/config.toml", "/etc/app/credentials", "/etc/environment",
}

func TestF30SecretFilesAreNeverShown(t *testing.T) {
	files := map[string]string{"/etc/nginx/nginx.conf": "daemon off;", "/etc/app/plain": "x"}
	for _, name := range secretEtc {
		files[name] = "canary-30"
	}
	root := fakeEtc(t, files, slices.Concat(secretEtc, []string{"/etc/nginx/nginx.conf"})...)
	// They are not shown through any entry, although a package contains each, nor through a
	// directory above.
	p, err := planHost(root, "/etc/nginx", "/etc/apache2", "/etc/app", "/etc/ssl", "/etc/ssh", "/etc/mysql", "/etc/chromium.d")
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range p.files {
		if strings.Contains(string(f.data), "canary-30") {
			t.Errorf("%s is shown", name)
		}
	}
	if string(p.files["/etc/nginx/nginx.conf"].data) != "daemon off;" || string(p.files["/etc/app/plain"].data) != "x" {
		t.Error("control: a file without secrets is not shown")
	}
	// They are not shown by name either.
	for _, name := range secretEtc {
		if _, err := planHost(root, name); fault.CodeOf(err) != "host_etc_refused" {
			t.Errorf("%s: planHost: error %v", name, err)
		}
	}
	for _, name := range []string{"/etc", "/etc/", "/etc/../root", "/usr/x", "etc/nginx", "/etc/none"} {
		if _, err := planHost(root, name); fault.CodeOf(err) != "host_etc_invalid" {
			t.Errorf("%s: planHost: error %v", name, err)
		}
	}
}

// The setting host_etc shows changed files, but only those that every user may read.
func TestF30HostEtcSetting(t *testing.T) {
	root := fakeEtc(t, map[string]string{
		"/etc/nginx/nginx.conf": "changed", "/etc/nginx/conf.d/a.conf": "a", "/etc/nginx/closed": "canary-30", "/etc/nginx/inline": "x\n-----BEGIN RSA PRIVATE KEY-----\ncanary-30",
		"/etc/passwd": "canary-30", "/etc/hosts": "canary-30",
	})
	if err := os.Chmod(filepath.Join(root, "/etc/nginx/closed"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../closed", filepath.Join(root, "/etc/nginx/conf.d/link")); err != nil {
		t.Fatal(err)
	}
	p, err := planHost(root, "/etc/nginx", "/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	if string(p.files["/etc/nginx/nginx.conf"].data) != "changed" || string(p.files["/etc/nginx/conf.d/a.conf"].data) != "a" || p.links["/etc/nginx/conf.d/link"] != "../closed" {
		t.Error("a file in the setting is not shown")
	}
	for name, f := range p.files {
		if strings.Contains(string(f.data), "canary-30") {
			t.Errorf("%s is shown", name)
		}
	}
	dir := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := p.write(dir); err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(dir, "etc/nginx/conf.d/link")); err != nil || to != "../closed" {
		t.Errorf("Readlink: got %q, error %v", to, err)
	}
}

// The documentation lists each entry.
func TestF30EntriesAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/host-etc.md")
	if err != nil {
		t.Fatal(err)
	}
	unwrapped := strings.ReplaceAll(string(page), "\n  ", " ") + "\n"
	for _, s := range packageEtc {
		if entry := "\n- " + s.pkg + ": `" + strings.Join(s.paths, "`, `") + "`\n"; !strings.Contains(unwrapped, entry) {
			t.Errorf("docs/reference/host-etc.md has no entry%s", entry)
		}
	}
}
