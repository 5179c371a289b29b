package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
)

// serverArgs has the arguments for each command that needs a server.
var serverArgs = map[string]string{
	"apply": "dev", "approvals": "", "approve": "a0123456789abcdef012", "audit checkpoint": "", "audit export": "", "audit key": "--record", "audit prove": "1",
	"audit show": "1", "audit tail": "", "audit verify": "", "browser": "", "commit": "dev x", "console": "", "console ls": "", "console revoke": "x", "cp": "dev:/x y",
	"deny": "a0123456789abcdef012 --reason no", "dev": "../devcontainer/testdata/image", "diff": "dev", "discard": "dev -y", "exec": "dev true", "export": "dev --tar x.tar", "fork": "dev", "inspect": "dev",
	"engines": "", "bench engines": "", "cache advisories import": ".", "cache advisories ls": "", "cache advisories rm": "npm", "cache ls": "", "cache prune": "", "cache stats": "", "cache verify": "", "image attach": "x x --type a/b", "image attached": "x", "image bootstrap": "", "image export": "x -o x.tar", "image import": "x", "image inspect": "x", "image sbom": "x", "image verify": "x --provenance x", "image ls": "", "image prune": "", "image pull": "x", "image push": "x", "image rm": "x", "key ls": "", "key new": "", "key revoke": "x", "logs": "dev", "ls": "", "net log": "dev", "pause": "dev", "policy explain": "dev GET https://x.example/",
	"policy set": "dev --allow x.example", "policy show": "dev", "prune": "-y", "ps": "dev", "reset": "dev -y", "resume": "dev", "rm": "dev", "rollback": "dev x -y",
	"run": "--no-workspace true", "secret ls": "", "secret rm": "x", "secret rotate": "X", "secret set": "X", "shell": "dev", "ssh": "dev",
	"snapshot": "dev", "snapshot ls": "", "snapshot rm": "x", "stats": "dev", "stop": "dev", "template build": "-t x .", "template builds": "", "template create": "x",
	"template inspect": "x", "template ls": "", "template rm": "x", "template tag": "x y", "tree": "",
	"volume cp": "x:/a b", "volume create": "x", "volume inspect": "x", "volume ls": "", "volume rm": "x", "volume snapshot": "x y",
}

// localCommands are the commands that need no server.
var localCommands = strings.Split("audit verify-artifact,completion,config,doctor,drill,drill ls,man,mcp,mcp install,"+
	"mcp skill,mcp uninstall,policy check,policy test,secret rotate-key,serve,version", ",")

// invoke runs one command against a server.
func invoke(t *testing.T, url string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	input := filepath.Join(t.TempDir(), "in")
	if err := os.WriteFile(input, []byte("a value"), 0o600); err != nil {
		t.Fatal(err)
	}
	stdin, err := os.Open(input)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	var out, errs bytes.Buffer
	vars := map[string]string{"CRANNOG_STATE": t.TempDir(), "CRANNOG_URL": url, "CRANNOG_KEY": "e2b_" + strings.Repeat("0", 40)}
	code = Run(t.Context(), args, Env{
		Stdin: stdin, Stdout: &out, Stderr: &errs, Version: "v9",
		Config: config.Env{Lookup: func(name string) (string, bool) { v, ok := vars[name]; return v, ok }, UID: 1000, Home: t.TempDir()},
	})
	return code, out.String(), errs.String()
}

// eachCommand calls do for each command that can be run.
func eachCommand(cmd *cobra.Command, do func(path string, own bool)) {
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() || sub.Name() == "help" {
			continue
		}
		path := strings.TrimPrefix(sub.CommandPath(), "crannog ")
		_, needsServer := serverArgs[path]
		// A command that only groups others cannot be run.
		if sub.Runnable() && (!sub.HasSubCommands() || needsServer || slices.Contains(localCommands, path)) {
			do(path, sub.Annotations["code"] == "own")
		}
		eachCommand(sub, do)
	}
}

// Each kind of mistake has one exit code in all commands. Earlier, a wrong name had the code 2, 3
// or 125, depending on the command.
func TestF32ExitCodeOfMistakes(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("Dockerfile", []byte("FROM scratch\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	problem := fault.Kind("")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := map[fault.Kind]int{fault.NotFound: 404, fault.Denied: 403, fault.Unauthenticated: 401, fault.Conflict: 409, fault.Exists: 409, fault.Invalid: 400, fault.Internal: 500}[problem]
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(api.Problem{Kind: string(problem), Code: "x", Title: "x", Detail: "x", Status: status})
	}))
	defer server.Close()
	var known []string
	eachCommand((&app{}).root(), func(path string, own bool) {
		known = append(known, path)
		words := strings.Fields(path)
		check := func(mistake string, want int, url string, args ...string) {
			t.Helper()
			if own {
				want = codeInternal
			}
			if code, _, stderr := invoke(t, url, append(slices.Clone(words), args...)...); code != want || !strings.Contains(stderr, "code=") {
				t.Errorf("%s, %s: exit code %d, want %d\n%s", path, mistake, code, want, stderr)
			}
		}
		check("an unknown flag", codeUsage, "", "--no-such-flag")
		check("a setting that cannot work", codeUsage, "no url", strings.Fields(serverArgs[path])...)
		args, needsServer := serverArgs[path]
		if !needsServer {
			return
		}
		check("no server", codeUnreachable, "http://127.0.0.1:1", strings.Fields(args)...)
		for kind, want := range map[fault.Kind]int{
			fault.NotFound: codeNotFound, fault.Denied: codeDenied, fault.Unauthenticated: codeDenied, fault.Conflict: codeConflict,
			fault.Exists: codeConflict, fault.Invalid: codeUsage,
		} {
			problem = kind
			check(string(kind), want, server.URL, strings.Fields(args)...)
		}
	})
	for _, path := range append(localCommands, slices.Collect(func(yield func(string) bool) {
		for path := range serverArgs {
			if !yield(path) {
				return
			}
		}
	})...) {
		if !slices.Contains(known, path) {
			t.Errorf("command %q does not exist any more", path)
		}
	}
	for _, path := range known {
		if _, needsServer := serverArgs[path]; needsServer == slices.Contains(localCommands, path) {
			t.Errorf("command %q must be in exactly one of serverArgs and localCommands of this test", path)
		}
	}
}

func TestF32UnknownCommandsOfGroups(t *testing.T) {
	for _, args := range []string{"audit", "net", "policy", "key", "secret"} {
		code, stdout, stderr := run(t, args, "shwo")
		if code != codeUsage || stdout != "" || !strings.Contains(stderr, "unknown command") {
			t.Errorf("crannog %s shwo: got exit code %d, output %q, error %q", args, code, stdout, stderr)
		}
		if code, stdout, _ := run(t, args); code != 0 || !strings.Contains(stdout, "Available Commands") {
			t.Errorf("run(%s): got %d, %q", args, code, stdout)
		}
	}
}

func TestF32MistakesAreExplained(t *testing.T) {
	for line, want := range map[string]string{
		"isnpect dev":                               "did you mean crannog inspect?",
		"audit shwo":                                "did you mean crannog audit show?",
		"top":                                       "did you mean crannog stats?",
		"run --memmory 1g true":                     "did you mean --memory?",
		"run --work . true":                         "did you mean --workspace?",
		"run -it bash":                              "has a terminal if crannog has one",
		"run -p 8080:80 true":                       "ports need not be published",
		"run -v /a:/b true":                         "-v means --verbose, so \"/a:/b\" would be the command\n  hint:  to mount a directory of the host",
		"run -v .:/b true":                          "to mount a directory of the host",
		"run -v=/a:/b true":                         "-v is --verbose; to mount a directory of the host",
		"run --volume /a:/b true":                   "to mount a directory of the host",
		"run --network host true":                   "--net none, dev or open",
		"run --cpus 0 true":                         "--cpus: 0 is zero, which does not mean unlimited",
		"run --cpus 0.0001 true":                    "unreachable", // a positive number is at least a thousandth
		"run --memory 0 true":                       "--memory: 0 is zero",
		"run --disk 0m true":                        "--disk: 0m is zero",
		"run --pids 0 true":                         "--pids: 0 is zero",
		"run --memory 512 true":                     "--memory 512m is 512 MiB",
		"run --allow https://host.example/x true":   "--allow host.example allows all paths of that host; to allow only some paths, write a policy",
		"run --allow http://host.example true":      "--allow host.example:80",
		"run --allow 169.254.169.254 true":          "link-local, where clouds keep their metadata",
		"run --allow [::1]:443 true":                "no policy can allow",
		"run --allow 127.0.0.0/8 true":              "the loopback of this machine",
		"run --allow localhost:8080 true":           "it means this machine",
		"run --allow ::ffff:169.254.169.254 true":   "no policy can allow",
		"policy set dev --allow 10.1.2.3":           "list it under cidrs",
		"run --allow 203.0.114.7 --cpus 0 true":     "--cpus: 0 is zero",
		"run --allow example.com:8443 -- true":      "unreachable",
		"run -v -- /a:/b":                           "unreachable",
		"run -v sh -c true":                         "unreachable",
		"run --memory 512m --allow 1.1.1.1:53 true": "unreachable",
	} {
		if code, _, stderr := run(t, strings.Fields(line)...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("crannog %s: got exit code %d, want %q in:\n%s", line, code, want, stderr)
		}
	}
}

func TestF32VersionFlag(t *testing.T) {
	_, want, _ := run(t, "version")
	if code, got, _ := run(t, "--version"); code != 0 || got != want || !strings.Contains(got, "v9") {
		t.Errorf("--version: got exit code %d and %q, want 0 and %q", code, got, want)
	}
}
