package crannog_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// Apply with a digest applies exactly the changes that were shown, or none.
func ExampleSandbox_Apply() {
	ctx := context.Background()
	var client *crannog.Client // from Local: only callers on the server's machine apply
	sb, err := client.Create(ctx, crannog.Workspace("/home/ann/shop"))
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Kill(ctx)
	if out, err := sb.CommandContext(ctx, "make", "fmt").CombinedOutput(); err != nil {
		log.Fatalf("%v\n%s", err, out)
	}
	changes, err := sb.Changes(ctx, crannog.ChangesOptions{Text: true})
	if err != nil {
		log.Fatal(err)
	}
	for _, change := range changes.Changes {
		fmt.Println(change.Op, change.Path, change.Flags)
	}
	applied, err := sb.Apply(ctx, api.Apply{Digest: changes.Digest})
	if errors.Is(err, crannog.ErrDenied) && crannog.Code(err) == "export_pending" {
		fmt.Println("a person has to approve the changes first")
		return
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(applied.Applied), "files applied")
}

// The pipes of a Cmd work like those of os/exec.
func ExampleCmd_StdoutPipe() {
	ctx := context.Background()
	var sb *crannog.Sandbox // from Create or Get
	cmd := sb.CommandContext(ctx, "go", "test", "-json", "./...")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		fmt.Println(lines.Text())
	}
	if err := errors.Join(lines.Err(), cmd.Wait()); err != nil {
		fmt.Println(err)
	}
}

// Record reads the entries of the audit log, here the programs of one sandbox.
func ExampleClient_Record() {
	ctx := context.Background()
	var client *crannog.Client // from New or Local
	for entry, err := range client.Record(ctx, crannog.RecordOptions{Sandbox: "dev", Kinds: []string{"exec", "exit"}}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d %s %s\n", entry.Seq, entry.Kind, entry.Data)
	}
}

// Verification compares the whole audit log with signed tree heads that were stored elsewhere.
func ExampleClient_VerifyRecord() {
	ctx := context.Background()
	var client *crannog.Client // from Local: only callers on the server's machine verify
	head, err := client.Checkpoint(ctx)
	if err != nil {
		log.Fatal(err)
	}
	v, err := client.VerifyRecord(ctx, head.Note)
	if err != nil {
		log.Fatal(err)
	}
	if !v.OK {
		fmt.Println("entry", v.Seq, "is not as it was written:", v.Text)
	}
}
