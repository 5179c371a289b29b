package crannog_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
)

// Allow opens single hosts. Without it and without a policy there is no network.
func ExampleAllow() {
	ctx := context.Background()
	var client *crannog.Client // from New or Local
	sb, err := client.Create(ctx, crannog.Allow("pypi.org", "files.pythonhosted.org"))
	if err != nil {
		log.Fatal(err)
	}
	defer sb.Kill(ctx)
	cmd := sb.CommandContext(ctx, "pip", "download", "six")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		fmt.Println(err)
	}
}

// A policy decides by method and path. Its secret is added outside the sandbox.
func ExamplePolicy() {
	ctx := context.Background()
	var client *crannog.Client // from New or Local
	if _, err := client.NewSecret(ctx, api.CreateSecret{Name: "GITHUB_TOKEN", Value: os.Getenv("GITHUB_TOKEN")}); err != nil {
		log.Fatal(err)
	}
	sb, err := client.Create(ctx, crannog.Policy(`
policy: v1
level: light
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
	result, err := sb.Exec(ctx, api.Exec{Cmd: []string{"curl", "-sS", "-X", "POST", "https://api.github.com/user"}})
	if err != nil {
		log.Fatal(err)
	}
	for _, denial := range result.Denied {
		fmt.Println(denial.What, "is denied by", denial.Rule)
	}
}

// Approval requests arrive as events. A decision is valid for exactly that request.
func ExampleClient_WatchApprovals() {
	ctx := context.Background()
	var client *crannog.Client // from New or Local
	_, err := client.WatchApprovals(ctx, "", "", func(event api.ApprovalEvent) error {
		if event.Type != "pending" {
			return nil
		}
		fmt.Println(event.Approval.Summary)
		_, err := client.Deny(ctx, event.Approval.ID, "not during the freeze")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

// HTTPClient reaches programs that listen inside.
func ExampleSandbox_HTTPClient() {
	ctx := context.Background()
	var sb *crannog.Sandbox // from Create or Get
	server := sb.CommandContext(ctx, "python3", "-m", "http.server", "8080")
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	resp, err := sb.HTTPClient().Get("http://localhost:8080/")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		log.Fatal(err)
	}
}
