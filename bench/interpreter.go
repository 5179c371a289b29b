package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/internal/guest/guestboot"
)

// languages are the interpreter's languages, each with code that prints 42 and a bare start of the
// same program.
var languages = []struct {
	name, code string
	bare       []string
}{
	{"python", "print(6*7)", []string{"/usr/bin/python3", "-c", "pass"}},
	{"javascript", "console.log(6*7)", []string{"node", "-e", "0"}},
	{"bash", "echo $((6*7))", []string{"bash", "-c", ":"}},
}

// interpreterFigures measures the time to a first answer of each language.
func interpreterFigures(ctx context.Context, b *bench) (err error) {
	srv, err := b.serve(ctx, b.crannog, "interpreter")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	s, err := race(ctx, b.n, contender{"python", func(ctx context.Context, s *scores) error {
		began := time.Now()
		sb, err := srv.client.Create(ctx, crannog.Timeout(5*time.Minute))
		if err != nil {
			return err
		}
		s.addTime("create", time.Since(began))
		err = runCode(ctx, sb, languages[0].code)
		s.addTime("create and first answer of python", time.Since(began))
		return errors.Join(err, sb.Kill(ctx))
	}})
	if err != nil {
		return err
	}
	b.report.add(table("interpreter", "from nothing to the result of `print(6*7)`", "ms", s))

	sb, err := srv.client.Create(ctx, crannog.Timeout(10*time.Minute))
	if err != nil {
		return err
	}
	for _, lang := range languages {
		if !found(lang.bare[0]) {
			continue
		}
		ready, answer, again := "worker ready", "worker ready and first answer", "answer of a worker that runs"
		s, err := race(ctx, b.n, bare("bare start", lang.bare...), contender{lang.name, func(ctx context.Context, s *scores) error {
			began := time.Now()
			id, err := srv.newContext(ctx, sb, lang.name)
			if err != nil {
				return err
			}
			s.addTime(ready, time.Since(began))
			if err := runCode(ctx, sb, lang.code, crannog.CodeContext(id)); err != nil {
				return err
			}
			s.addTime(answer, time.Since(began))
			began = time.Now()
			err = runCode(ctx, sb, lang.code, crannog.CodeContext(id))
			s.addTime(again, time.Since(began))
			return errors.Join(err, srv.dropContext(ctx, sb, id))
		}})
		if err != nil {
			return err
		}
		sec := table("interpreter", lang.name+" in a live sandbox", "ms", s, "bare start", ready, answer, again)
		sec.against("bare start", ready, answer)
		sec.target(ready, "≤ 50 ms", func(r row) bool { return r.P50 <= 50 })
		b.report.add(sec)
	}
	return nil
}

// runCode runs code that must print exactly 42.
func runCode(ctx context.Context, sb *crannog.Sandbox, code string, opts ...crannog.CodeOption) error {
	var printed strings.Builder
	for event, err := range sb.RunCode(ctx, code, opts...) {
		if err != nil {
			return err
		}
		switch event.Type {
		case "stdout":
			printed.WriteString(event.Text)
		case "error":
			return fmt.Errorf("%s: %s", event.Name, event.Value)
		}
	}
	if got := strings.TrimSpace(printed.String()); got != "42" {
		return fmt.Errorf("the interpreter printed %q", got)
	}
	return nil
}

// newContext creates a context of a language.
func (s *server) newContext(ctx context.Context, sb *crannog.Sandbox, language string) (string, error) {
	var created struct {
		ID string `json:"id"`
	}
	body := fmt.Sprintf(`{"language":%q}`, language)
	if err := s.interpreter(ctx, sb, http.MethodPost, "/contexts", body, &created); err != nil {
		return "", err
	}
	return created.ID, nil
}

// dropContext removes a context.
func (s *server) dropContext(ctx context.Context, sb *crannog.Sandbox, id string) error {
	return s.interpreter(ctx, sb, http.MethodDelete, "/contexts/"+id, "", nil)
}

// interpreter calls the interpreter in a sandbox with the protocol of its SDKs.
func (s *server) interpreter(ctx context.Context, sb *crannog.Sandbox, method, path, body string, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	info := sb.Info()
	req.Header.Set("E2b-Sandbox-Id", info.ID)
	req.Header.Set("E2b-Sandbox-Port", strconv.Itoa(guestboot.InterpreterPort))
	req.Header.Set("X-Access-Token", info.AccessToken)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s: %s: %w", method, path, resp.Status, data, err)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}
