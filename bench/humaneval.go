package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/crannog/crannog"
)

// program is a HumanEval program with its tests.
type program struct {
	TaskID     string `json:"task_id"`
	Prompt     string `json:"prompt"`
	Solution   string `json:"canonical_solution"`
	Test       string `json:"test"`
	EntryPoint string `json:"entry_point"`
}

func (p program) text() string {
	return p.Prompt + p.Solution + "\n" + p.Test + "\ncheck(" + p.EntryPoint + ")\nprint('passed')\n"
}

// humanevalFile returns the path of the programs: CRANNOG_HUMANEVAL, or a file beside the
// repository, which does not contain them.
func humanevalFile() string {
	if path := os.Getenv("CRANNOG_HUMANEVAL"); path != "" {
		return path
	}
	return "../shared/data/HumanEval.jsonl.gz"
}

func readPrograms(path string) ([]program, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	plain, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	var out []program
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var p program
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return nil, fmt.Errorf("program %d: %w", len(out)+1, err)
		}
		out = append(out, p)
	}
	if len(out) == 0 {
		return nil, errors.Join(errors.New("the file contains no program"), lines.Err())
	}
	return out, lines.Err()
}

// parallelPrograms is the number of programs that run at once, in sandboxes or bare.
const parallelPrograms = 8

// humanevalFigures runs every program in its own sandbox and bare, in turns of 41 programs.
func humanevalFigures(ctx context.Context, b *bench) (err error) {
	sec := section{Group: "humaneval", Title: fmt.Sprintf("one program with its tests, %d at once", parallelPrograms), Unit: "ms"}
	programs, err := readPrograms(humanevalFile())
	if errors.Is(err, fs.ErrNotExist) {
		sec.note("left out: no %s; name the file by CRANNOG_HUMANEVAL", humanevalFile())
		b.report.add(sec)
		return nil
	}
	if err != nil {
		return err
	}
	client, err := b.local(ctx, "humaneval")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	s := newScores()
	walls := map[string]time.Duration{}
	for part := range slices.Chunk(programs, 41) {
		for _, method := range []struct {
			name string
			run  func(context.Context, string) (string, error)
		}{
			{nameBare, func(ctx context.Context, text string) (string, error) { return b.solveBare(ctx, text) }},
			{"sandbox of its own", func(ctx context.Context, text string) (string, error) { return solveInSandbox(ctx, client, text) }},
		} {
			began := time.Now()
			if err := solveAll(ctx, s, method.name, part, method.run); err != nil {
				return fmt.Errorf("%s: %w", method.name, err)
			}
			walls[method.name] += time.Since(began)
		}
	}
	sec = table("humaneval", sec.Title, "ms", s, nameBare, "sandbox of its own")
	sec.against(nameBare)
	sandboxTime, bareTime := walls["sandbox of its own"], walls[nameBare]
	sec.note("all %d: bare %.1f s, in sandboxes %.1f s: %.1f ms of wall time more per program", len(programs), bareTime.Seconds(), sandboxTime.Seconds(),
		millis(sandboxTime-bareTime)/float64(len(programs)))
	b.report.add(sec)
	return nil
}

// solveAll runs programs concurrently, each of which must pass its tests.
func solveAll(ctx context.Context, s *scores, name string, programs []program, run func(context.Context, string) (string, error)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelPrograms)
	for _, p := range programs {
		group.Go(func() error {
			began := time.Now()
			out, err := run(ctx, p.text())
			s.addTime(name, time.Since(began))
			if err != nil || strings.TrimSpace(out) != "passed" {
				return fmt.Errorf("%s: %q: %w", p.TaskID, out, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (b *bench) solveBare(ctx context.Context, text string) (string, error) {
	var out firstByte
	err := hostCommandIn(ctx, strings.NewReader(text), &out, b.python, "-")
	return out.buf.String(), err
}

func solveInSandbox(ctx context.Context, client *crannog.Client, text string) (string, error) {
	sb, err := client.Create(ctx, crannog.Ephemeral(), crannog.Timeout(5*time.Minute))
	if err != nil {
		return "", err
	}
	cmd := sb.CommandContext(ctx, "python3", "-")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	return string(out), errors.Join(err, sb.Kill(context.WithoutCancel(ctx)))
}
