package crannog_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"os"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

func Example() {
	ctx := context.Background()
	client, err := crannog.New(crannog.FromEnv())
	if err != nil {
		log.Fatal(err)
	}
	sb, err := client.Create(ctx, crannog.Timeout(time.Minute), crannog.Limits(api.Limits{MemoryBytes: 512 << 20}))
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Kill(ctx)
	cmd := sb.CommandContext(ctx, "python3", "-c", "print(6*7)")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if exit, ok := errors.AsType[*crannog.ExitError](cmd.Run()); ok {
		fmt.Println("ended with", exit.ExitCode())
	}
}

// A program that runs sandboxes itself calls Main first, because the engine
// starts the same program again in other roles.
func ExampleLocal() {
	crannog.Main()
	ctx := context.Background()
	client, err := crannog.Local(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	sb, err := client.Create(ctx, crannog.Ephemeral())
	if err != nil {
		log.Fatal(err)
	}
	out, err := sb.CommandContext(ctx, "uname", "-a").Output()
	fmt.Printf("%s %v\n", out, err)
}

func ExampleSandbox_FS() {
	var sb *crannog.Sandbox // from Create or Get
	err := fs.WalkDir(sb.FS(), "workspace", func(path string, _ fs.DirEntry, err error) error {
		fmt.Println(path)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("there is no workspace")
	}
}

func ExampleSandbox_RunCode() {
	var sb *crannog.Sandbox // from Create or Get
	for event, err := range sb.RunCode(context.Background(), "x = 6*7\nx") {
		if err != nil {
			log.Fatal(err)
		}
		if event.Type == "result" {
			fmt.Println(event.Text)
		}
	}
}

// A snapshot is taken once, and any number of sandboxes start from it.
func ExampleSandbox_Snapshot() {
	ctx := context.Background()
	var client *crannog.Client // from New or Local
	var sb *crannog.Sandbox    // from Create, with everything installed
	snap, err := sb.Snapshot(ctx, api.CreateSnapshot{Name: "installed"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("snapshot", snap.ID)
	next, err := client.Create(ctx, crannog.Template("installed"))
	if err != nil {
		log.Fatal(err)
	}
	defer next.Kill(ctx)
	if err := sb.Rollback(ctx, snap.ID); errors.Is(err, crannog.ErrNotFound) {
		fmt.Println("the snapshot was removed")
	}
}

// Each copy continues from the same moment, independently of the others.
func ExampleSandbox_Fork() {
	ctx := context.Background()
	var sb *crannog.Sandbox // from Create or Get
	copies, err := sb.Fork(ctx, api.CreateFork{Count: 3})
	for i, c := range copies {
		defer c.Kill(ctx)
		out, err := c.CommandContext(ctx, "./attempt", fmt.Sprint(i)).Output()
		fmt.Printf("%s %v\n", out, err)
	}
	if err != nil {
		fmt.Println("some copies failed:", err)
	}
}

// A paused sandbox uses no memory, and Resume continues it where it was.
func ExampleSandbox_Pause() {
	ctx := context.Background()
	var sb *crannog.Sandbox // from Create or Get
	if err := sb.Pause(ctx); err != nil && crannog.Code(err) != "sandbox_paused" {
		log.Fatal(err)
	}
	if err := sb.Resume(ctx, time.Hour); err != nil {
		log.Fatal(err)
	}
}
