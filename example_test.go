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
