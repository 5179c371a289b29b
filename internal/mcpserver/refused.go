package mcpserver

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/host/text"
)

const (
	// mostRefused bounds what a result says of refusals: a program in a loop
	// must not bury its own output.
	mostRefused = 10
	// refusedTime is how long looking for refusals may take. They are kept,
	// and the next call's result says nothing false without them.
	refusedTime = 3 * time.Second
)

// sinceNow returns the number of the last refusal so far, so that a call tells
// of those that it caused.
func (b *box) sinceNow(ctx context.Context) uint64 {
	b.mu.Lock()
	after := b.refused
	b.mu.Unlock()
	if !b.sb.Info().Network.Attached {
		return after
	}
	ctx, cancel := context.WithTimeout(ctx, refusedTime)
	defer cancel()
	_ = b.sb.Flows(ctx, crannog.FlowOptions{Denied: true, After: after}, func(r api.FlowRecord) error {
		after = max(after, r.Seq)
		return nil
	})
	b.seen(after)
	return after
}

func (b *box) seen(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refused = max(b.refused, seq)
}

// tellRefused tells of what the policy refused after a record. Where there is
// no network, the names that were asked for are told if the command failed.
func (c *call) tellRefused(ctx context.Context, b *box, since uint64, failed bool) []string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refusedTime)
	defer cancel()
	var list []string
	said := map[string]bool{}
	note := func(line string) {
		if !said[line] {
			said[line] = true
			list = append(list, line)
		}
	}
	if b.sb.Info().Network.Attached {
		last := since
		_ = b.sb.Flows(ctx, crannog.FlowOptions{Denied: true, After: since}, func(r api.FlowRecord) error {
			last = max(last, r.Seq)
			if r.Kind != "link" {
				note(refusal(r))
			}
			return nil
		})
		b.seen(last)
	} else if failed {
		names, _ := b.sb.Asked(ctx) // without them nothing is said
		b.mu.Lock()
		for _, name := range names {
			if !b.asked[name] {
				b.asked[name] = true
				note(text.Strict(name, 200) + ": this sandbox has no network")
			}
		}
		b.mu.Unlock()
	}
	if len(list) == 0 {
		return nil
	}
	c.say("[%d %s blocked by the policy; use request_access if you need it]\n", len(list), plural(len(list), "request", "requests"))
	rest := len(list) - mostRefused
	if rest > 0 {
		list = append(list[:mostRefused], fmt.Sprintf("and %d more", rest))
	}
	for _, line := range list {
		c.say("- %s\n", line)
	}
	return list
}

// refusal is one refused thing in a line.
func refusal(r api.FlowRecord) string {
	var b strings.Builder
	if r.Method != "" {
		b.WriteString(text.Strict(r.Method, 20) + " ")
	}
	b.WriteString(text.Strict(r.Host, 200))
	if r.Kind != "dns" && r.Port > 0 {
		b.WriteString(":" + strconv.Itoa(r.Port))
	}
	b.WriteString(text.Strict(r.Path, 200))
	if r.Host == "" {
		b.WriteString(text.Strict(r.Address, 100))
	}
	b.WriteString(": " + text.Strict(first(r.Reason, "not allowed"), 300) + " (rule " + text.Strict(r.Rule, 100) + ")")
	if r.Approval != "" {
		b.WriteString("; a person was asked, as " + text.Strict(r.Approval, 40))
	}
	return b.String()
}

func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
