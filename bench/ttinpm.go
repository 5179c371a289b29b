package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed tti.mjs
var npmScript []byte

// npmServer describes a server to the script tti.mjs.
type npmServer struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	Key  string `json:"key"`
	Runs bool   `json:"runs"` // whether it runs commands, so that their output is checked
}

const (
	npmWarm    = "a sandbox, from the pool"
	npmCold    = "a sandbox, cold"
	npmBwrap   = "bwrap for each command"
	npmNothing = "a server that runs nothing"
)

// npmFigures measures how long a caller of the npm client waits.
func (b *bench) npmFigures(ctx context.Context, group string, limit float64, warm, cold *server) error {
	manifest, err := filepath.Abs(filepath.Join(b.npm, "package.json"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(b.npm, "node_modules", "e2b")); err != nil || !found("node") {
		sec := section{Group: group, Title: "through npm e2b", Unit: "ms"}
		sec.note("not measured: there is no node, or no npm client in %s; bench/run.sh installs it", b.npm)
		b.report.add(sec)
		return nil
	}
	servers := []npmServer{{npmWarm, warm.url, warm.key, true}, {npmCold, cold.url, cold.key, true}}
	nothing, err := newStubServer(nil)
	if err != nil {
		return err
	}
	defer nothing.close()
	servers = append(servers, npmServer{npmNothing, nothing.url, stubKey, false})
	if found("bwrap") {
		jailed, err := newStubServer(bubblewrap)
		if err != nil {
			return err
		}
		defer jailed.close()
		servers = append(servers, npmServer{npmBwrap, jailed.url, stubKey, true})
	}
	s, err := b.runScript(ctx, manifest, servers)
	if err != nil {
		return err
	}
	b.npmSections(s, group, limit, servers)
	return nil
}

// npmSections adds a table for each step of the script. The limit is the most that the commands may
// take, as a multiple of one bwrap for each command.
func (b *bench) npmSections(s *scores, group string, limit float64, servers []npmServer) {
	for _, suffix := range []string{"", ", at once"} {
		title := "through npm e2b, one after the other"
		if suffix != "" {
			title = fmt.Sprintf("through npm e2b, %d at once", b.crowd)
		}
		for _, what := range []string{"create", "first command", "both commands", "all"} {
			part := newScores()
			for _, server := range servers {
				for _, v := range s.by[server.Name+"\x00"+what+suffix] {
					part.add(server.Name, v)
				}
			}
			if len(part.order) == 0 {
				continue
			}
			sec := table(group, title+": "+meaning(what), "ms", part)
			sec.tails99(part)
			baseline := npmBwrap
			if what == "create" {
				baseline = npmNothing // bwrap has no create step
			}
			sec.against(baseline)
			if what == "both commands" {
				sec.target(npmWarm, fmt.Sprintf("≤ %.2f× %s", limit, npmBwrap), func(r row) bool { return r.Ratio > 0 && r.Ratio <= limit })
			}
			b.report.add(sec)
		}
	}
	for _, name := range s.order {
		if server, what, _ := strings.Cut(name, "\x00"); strings.HasPrefix(what, "failed") {
			sec := section{Group: group, Title: "what went wrong", Unit: "ms"}
			sec.note("%s: %d × %s", server, len(s.by[name]), what)
			b.report.add(sec)
		}
	}
}

// meaning describes a step.
func meaning(what string) string {
	switch what {
	case "create":
		return "create returns"
	case "first command":
		return "create and `echo ok`"
	case "both commands":
		return "create, `echo ok` and `node -v`"
	}
	return "until the last has ended"
}

// runScript runs the script and collects its results.
func (b *bench) runScript(ctx context.Context, manifest string, servers []npmServer) (*scores, error) {
	script := filepath.Join(b.dir, "tti.mjs")
	if err := os.WriteFile(script, npmScript, 0o600); err != nil {
		return nil, err
	}
	plan, err := json.Marshal(map[string]any{"rounds": b.n, "crowd": b.crowd, "servers": servers, "pause": refill.Milliseconds()})
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "node", script, manifest, string(plan))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	cmd.Env = []string{"HOME=/nonexistent", "PATH=" + os.Getenv("PATH")}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := newScores()
	lines := bufio.NewScanner(stdout)
	var bad error
	for lines.Scan() {
		var one struct {
			Server string  `json:"server"`
			What   string  `json:"what"`
			MS     float64 `json:"ms"`
		}
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			bad = fmt.Errorf("the script printed %q: %w", lines.Text(), err)
			continue
		}
		s.add(one.Server+"\x00"+one.What, one.MS)
	}
	if err := errors.Join(cmd.Wait(), bad, lines.Err()); err != nil {
		return nil, fmt.Errorf("npm client: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return s, nil
}
