package crannog_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// stateDir is the state directory of the examples that run.
var stateDir string

// The examples with output start sandboxes in this process, which needs root. They run if only
// examples are selected (go test -run '^Example'), because a process that has called Main cannot
// run the tests of a program that has not.
func TestMain(m *testing.M) {
	inTest := slices.ContainsFunc(os.Args, func(arg string) bool { return strings.HasPrefix(arg, "-test.") })
	if !inTest {
		crannog.Main() // this process is a part of the engine, which an example started
	}
	flag.Parse()
	os.Exit(func() int {
		selected := strings.HasPrefix(flag.Lookup("test.run").Value.String(), "^Example")
		if selected && os.Geteuid() != 0 && hosttest.Must() {
			fmt.Fprintln(os.Stderr, "the examples that start sandboxes need root, and CRANNOG_TEST_HOST is must")
			return 1
		}
		if os.Geteuid() != 0 || !selected {
			if err := flag.Set("test.skip", "^Example.*_sandbox$"); err != nil {
				panic(err)
			}
			return m.Run()
		}
		crannog.Main()
		var err error
		if stateDir, err = os.MkdirTemp("", "ce"); err != nil {
			panic(err)
		}
		defer os.RemoveAll(stateDir)
		return m.Run()
	}())
}

// A command in a sandbox looks like one of os/exec.
func ExampleSandbox_CommandContext_sandbox() {
	ctx := context.Background()
	client, err := crannog.Local(ctx, crannog.State(stateDir))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sb, err := client.Create(ctx, crannog.Ephemeral())
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Kill(ctx)

	cmd := sb.CommandContext(ctx, "sh", "-c", "tr a-z A-Z; exit 3")
	cmd.Stdin = strings.NewReader("hello\n")
	out, err := cmd.Output()
	fmt.Printf("%s", out)
	if exit, ok := errors.AsType[*crannog.ExitError](err); ok {
		fmt.Println("exit code", exit.ExitCode())
	}
	// Output:
	// HELLO
	// exit code 3
}

// The files of a sandbox are an fs.FS that can also be written.
func ExampleFS_sandbox() {
	ctx := context.Background()
	client, err := crannog.Local(ctx, crannog.State(stateDir))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sb, err := client.Create(ctx, crannog.Ephemeral())
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Kill(ctx)

	files := sb.FS()
	if err := files.WriteFile("workspace/src/a.txt", []byte("written from outside"), 0o644); err != nil {
		log.Fatal(err)
	}
	err = fs.WalkDir(files, "workspace", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			fmt.Println(path)
		}
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	out, err := sb.CommandContext(ctx, "cat", "/workspace/src/a.txt").Output()
	fmt.Println(string(out), err)
	// Output:
	// workspace/src/a.txt
	// written from outside <nil>
}

// Only the allowed hosts can be reached, and each denial names its rule.
func ExampleAllow_sandbox() {
	ctx := context.Background()
	client, err := crannog.Local(ctx, crannog.State(stateDir))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sb, err := client.Create(ctx, crannog.Ephemeral(), crannog.Allow("pypi.org"))
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Kill(ctx)

	result, err := sb.Exec(ctx, api.Exec{Cmd: []string{"getent", "hosts", "example.com"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, denial := range result.Denied {
		fmt.Println(denial.What, "is denied by", denial.Rule)
		fmt.Println("fix:", denial.Fix)
	}
	// Output:
	// example.com is denied by network.unlisted
	// fix: --allow example.com
}

// The gateway sets a secret on requests to its host. Neither the sandbox nor a list shows the
// value.
func ExampleClient_NewSecret_sandbox() {
	ctx := context.Background()
	client, err := crannog.Local(ctx, crannog.State(stateDir))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	const value = "ghp_0123456789abcdef"
	if _, err := client.NewSecret(ctx, api.CreateSecret{Name: "GITHUB_TOKEN", Value: value}); err != nil {
		log.Fatal(err)
	}
	defer client.RemoveSecret(ctx, "GITHUB_TOKEN")
	sb, err := client.Create(ctx, crannog.Ephemeral(), crannog.Policy(`
policy: v1
network:
  unlisted: deny
  hosts:
    - host: api.github.com
      rules: [{id: read, methods: [GET], do: allow}]
secrets:
  bind:
    - {name: GITHUB_TOKEN, host: api.github.com, header: Authorization, format: "Bearer {}"}
`))
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Kill(ctx)

	secrets, err := client.Secrets(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, secret := range secrets {
		fmt.Println(secret.Name, "version", secret.Version)
	}
	out, err := sb.CommandContext(ctx, "env").Output()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("visible inside:", strings.Contains(string(out), value))
	// Output:
	// GITHUB_TOKEN version 1
	// visible inside: false
}

// A rollback returns a sandbox to a snapshot: memory, processes and files.
func ExampleSandbox_Rollback_sandbox() {
	ctx := context.Background()
	client, err := crannog.Local(ctx, crannog.State(stateDir))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sb, err := client.Create(ctx, crannog.Ephemeral())
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Kill(ctx)

	files := sb.FS()
	if err := files.WriteFile("workspace/a.txt", []byte("before"), 0o644); err != nil {
		log.Fatal(err)
	}
	snapshot, err := sb.Snapshot(ctx, api.CreateSnapshot{Name: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.RemoveSnapshot(ctx, snapshot.ID)
	if err := files.WriteFile("workspace/a.txt", []byte("after"), 0o644); err != nil {
		log.Fatal(err)
	}
	if err := sb.Rollback(ctx, snapshot.ID); err != nil {
		log.Fatal(err)
	}
	data, err := files.ReadFile("workspace/a.txt")
	fmt.Println(string(data), err)
	// Output: before <nil>
}
