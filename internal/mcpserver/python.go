package mcpserver

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/crannog/crannog"
)

type pythonIn struct {
	target
	Code     string  `json:"code" jsonschema:"Code to run, as in a cell of a notebook. Variables stay for the next call; the value of the last expression is shown."`
	Language string  `json:"language,omitempty" jsonschema:"Language of the code. Each language has its own variables."`
	Timeout  float64 `json:"timeout_seconds,omitempty" jsonschema:"How long to wait. Code that takes longer continues in the background; until it ends, other code waits."`
}

func (w *view) addPython() {
	add(w, tool{
		name: "python", title: "Run code in a notebook", changes: true, destroys: true, reaches: true,
		text: "Run Python, JavaScript, TypeScript, R or Java in a kernel that keeps its variables between calls. Charts and pictures are returned as images. " +
			"An error in the code is in stderr, with exit_code 1.",
		shape: func(p map[string]*jsonschema.Schema) {
			oneOf(p["language"], "python", "javascript", "typescript", "r", "java")
			defaultsTo(p["language"], `"python"`)
			inRange(p["timeout_seconds"], 0.1, maxWait.Seconds())
			defaultsTo(p["timeout_seconds"], "120")
		},
	}, w.python)
}

func (w *view) python(ctx context.Context, c *call, in pythonIn) (commandResult, error) {
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return commandResult{}, err
	}
	since := b.latestDenial(ctx)
	j, err := b.begin(in.Code)
	if err != nil {
		return commandResult{}, err
	}
	jobCtx, cancel := context.WithCancel(b.tenant.jobContext())
	// A canceled call interrupts the code. The variables are preserved.
	j.kill = func() error { cancel(); return nil }
	go func() {
		defer cancel()
		code, err := b.cell(jobCtx, j, in)
		j.finished(code, err)
	}()
	defer c.progress(ctx, j.progress)()
	if err := j.wait(ctx, c.waitTime(in.Timeout)); err != nil {
		return commandResult{}, err
	}
	return c.report(ctx, b, j, since)
}

// cell runs code to its end and returns 1 if it failed.
func (b *agentSandbox) cell(ctx context.Context, j *job, in pythonIn) (int, error) {
	stdout, stderr := io.MultiWriter(j.combined, j.out), io.MultiWriter(j.combined, j.err)
	language := firstNonEmpty(in.Language, "python")
	code := 0
	for e, err := range b.sb.RunCode(ctx, in.Code, crannog.Language(language)) {
		if ctx.Err() != nil {
			return exitKilled, nil
		}
		if err != nil {
			return 0, err
		}
		switch e.Type {
		case "stdout":
			writeText(stdout, e.Text)
		case "stderr":
			writeText(stderr, e.Text)
		case "error":
			code = 1
			writeText(stderr, firstNonEmpty(e.Traceback, e.Name+": "+e.Value)+"\n")
		case "result":
			b.keepResult(j, stdout, e)
		}
	}
	return code, nil
}

// exitKilled is the exit code of killed code, like that of a killed command.
const exitKilled = 128 + 9

func writeText(w io.Writer, text string) { _, _ = io.WriteString(w, text) } // the buffer accepts all writes

// keepResult stores a value: its picture if it has one, otherwise its text.
func (b *agentSandbox) keepResult(j *job, stdout io.Writer, e crannog.Event) {
	for _, form := range []string{"png", "jpeg"} {
		encoded := e.Result[form]
		if len(encoded) > 2*maxImage {
			continue // too large, even for base64 that is broken into lines
		}
		data, err := base64.StdEncoding.DecodeString(jsonText(encoded))
		if err != nil || len(data) == 0 || len(data) > maxImage {
			continue
		}
		b.tenant.pictures.keep(b, j, image{"image/" + form, data})
		return
	}
	for _, form := range []string{"text", "markdown", "json", "latex"} {
		if t := jsonText(e.Result[form]); t != "" {
			writeText(stdout, t)
			writeText(stdout, "\n")
			return
		}
	}
}

// jsonText returns the content of a JSON string; other values are returned as JSON.
func jsonText(raw json.RawMessage) string {
	var s string
	if len(raw) > 0 && json.Unmarshal(raw, &s) != nil {
		return string(raw)
	}
	return s
}
