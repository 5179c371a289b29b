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
	// maxDenials bounds the denials in a result, so that a program in a loop does not hide its own
	// output.
	maxDenials = 10
	// denialTimeout bounds reading the denials. Without them the result is still correct, and net
	// log shows them.
	denialTimeout = 3 * time.Second
)

// latestDenial returns the number of the last denial so far, so that a result lists only denials
// that its call caused.
func (b *agentSandbox) latestDenial(ctx context.Context) uint64 {
	b.mu.Lock()
	after := b.lastDenial
	b.mu.Unlock()
	if !b.sb.Info().Network.Attached {
		return after
	}
	ctx, cancel := context.WithTimeout(ctx, denialTimeout)
	defer cancel()
	_ = b.sb.Flows(ctx, crannog.FlowOptions{Denied: true, After: after}, func(r api.FlowRecord) error {
		after = max(after, r.Seq)
		return nil
	})
	b.setLastDenial(after)
	return after
}

func (b *agentSandbox) setLastDenial(seq uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastDenial = max(b.lastDenial, seq)
}

// reportDenied adds the denials after a given one to the result. Without a network it adds the
// names that programs tried to resolve, if the command failed.
func (c *call) reportDenied(ctx context.Context, b *agentSandbox, since uint64, failed bool) []string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), denialTimeout)
	defer cancel()
	var list []string
	reported := map[string]bool{}
	note := func(line string) {
		if !reported[line] {
			reported[line] = true
			list = append(list, line)
		}
	}
	if b.sb.Info().Network.Attached {
		last := since
		_ = b.sb.Flows(ctx, crannog.FlowOptions{Denied: true, After: since}, func(r api.FlowRecord) error {
			last = max(last, r.Seq)
			if r.Kind != "link" {
				note(denialLine(r))
			}
			return nil
		})
		b.setLastDenial(last)
	} else if failed {
		names, _ := b.sb.Asked(ctx) // nothing is added after an error
		b.mu.Lock()
		for _, name := range names {
			if !b.reportedNames[name] {
				b.reportedNames[name] = true
				note(text.Strict(name, 200) + ": this sandbox has no network")
			}
		}
		b.mu.Unlock()
	}
	if len(list) == 0 {
		return nil
	}
	c.printf("[%d %s blocked by the policy; use request_access if you need it]\n", len(list), plural(len(list), "request", "requests"))
	rest := len(list) - maxDenials
	if rest > 0 {
		list = append(list[:maxDenials], fmt.Sprintf("and %d more", rest))
	}
	for _, line := range list {
		c.printf("- %s\n", line)
	}
	return list
}

// denialLine returns a line about one denial.
func denialLine(r api.FlowRecord) string {
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
	b.WriteString(": " + text.Strict(firstNonEmpty(r.Reason, "not allowed"), 300) + " (rule " + text.Strict(r.Rule, 100) + ")")
	if r.Approval != "" {
		b.WriteString("; approval request " + text.Strict(r.Approval, 40))
	}
	return b.String()
}

func firstNonEmpty(texts ...string) string {
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
