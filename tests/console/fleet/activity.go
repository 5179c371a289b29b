package main

import (
	"context"
	"fmt"
	"time"

	"github.com/crannog/crannog/internal/audit"
	"github.com/crannog/crannog/internal/egress"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
)

// writeActivity writes audit entries once a second: a command started or ended in each sandbox, and
// sometimes a request was denied.
func writeActivity(ctx context.Context, log *audit.Log, ids []string) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		drafts := make([]audit.Draft, 0, len(ids)+1)
		for i, id := range ids {
			command := (n + 1) / 2
			d := audit.Draft{Kind: audit.CommandStarted, Sandbox: id, Actor: "key:fleet", Data: observe.Started{
				N: command, How: observe.HowExec, Argv: []string{"python3", "task.py", "--step", fmt.Sprint(command)},
			}}
			if n%2 == 0 {
				exit := 0
				if (i+n)%50 == 0 {
					exit = 1
				}
				d.Kind, d.Data = audit.CommandEnded, observe.Ended{N: command, Exit: &exit, DurationMS: 1000}
			}
			drafts = append(drafts, d)
			if (i+n)%100 == 0 {
				drafts = append(drafts, audit.Draft{Kind: audit.Flow, Sandbox: id, Actor: "box", Data: egress.Record{
					Time: time.Now(), Sandbox: id, Seq: uint64(n), Kind: egress.KindHTTP, Method: "GET", Host: "example.com", Port: 443, Path: "/",
					Decision: egress.Decision{Effect: egress.Deny, Rule: "network.unlisted", Layer: "level", Reason: "no rule allows it"},
				}})
			}
		}
		for len(drafts) > 0 {
			k := min(500, len(drafts))
			if err := log.Note(drafts[:k]...); err != nil {
				return err
			}
			drafts = drafts[k:]
		}
	}
}
