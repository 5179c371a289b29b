package causeway_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// geminiPackage is an agent that runs on Node without compiled parts, so that npm can install it
// anywhere.
const geminiPackage = "@google/gemini-cli@0.61.0"

// geminiTurn answers like the model's API: first with a tool call and then, after the tool's
// result, with text.
func geminiTurn(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	part := map[string]any{"functionCall": map[string]any{
		"name": "write_file", "args": map[string]any{"file_path": "/workspace/made.txt", "content": "by a tool\n"},
	}}
	switch {
	case bytes.Contains(body, []byte(`"functionResponse"`)):
		part = map[string]any{"text": "the file is there"}
	case !bytes.Contains(body, []byte(`"functionDeclarations"`)):
		part = map[string]any{"text": "{}"} // a question without tools, e.g. for a summary
	}
	answer, err := json.Marshal(map[string]any{
		"candidates": []any{map[string]any{
			"index": 0, "finishReason": "STOP", "content": map[string]any{"role": "model", "parts": []any{part}},
		}},
		"usageMetadata": map[string]any{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if strings.Contains(r.URL.Path, ":stream") {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = fmt.Fprintf(w, "data: %s\n\n", answer)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// P40: a real agent, installed by npm, works inside with a key that is never there. It asks its
// model and uses a tool, whose result is only in the sandbox's copy of the project.
func TestNamedAgentUsesToolWithoutKey(t *testing.T) {
	need(t, hosttest.Node, hosttest.Program("npm"))
	t.Parallel()
	w, err := newInternet()
	if err != nil {
		t.Fatal(err)
	}
	state, path, home, project := hosttest.ShortDir(t), program(t), hosttest.ShortDir(t), hosttest.ShortDir(t)
	if err := w.write(state); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := awaitCauseway(state); err != nil {
			t.Error(err)
		}
	})
	if err := retry(t, func() error {
		install := exec.CommandContext(t.Context(), "npm", "install", "--global", "--prefix", filepath.Join(home, ".npm-global"),
			"--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund", geminiPackage)
		if out, err := install.CombinedOutput(); err != nil {
			return fmt.Errorf("%w %s", err, out)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	api := w.web(t, 443, geminiTurn, "generativelanguage.googleapis.com")
	crannog := func(stdin string, args ...string) (string, string, error) {
		cmd := exec.CommandContext(t.Context(), path, args...)
		cmd.Dir, cmd.Stdin = project, strings.NewReader(stdin)
		cmd.Env = []string{"HOME=" + home, "CRANNOG_STATE=" + state, "PATH=/usr/local/bin:/usr/bin:/bin"}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		return stdout.String(), stderr.String(), err
	}
	if _, stderr, err := crannog(canary, "secret", "set", "GEMINI_API_KEY"); err != nil {
		t.Fatal(err, stderr)
	}
	out, stderr, err := crannog("", "run", "--name", "g", "gemini", "--", "--approval-mode", "yolo", "-m", "gemini-2.5-flash", "-p", "make the file")
	if err != nil || !strings.Contains(out, "the file is there") {
		t.Fatalf("run gemini: %v\n%s\n%s\nrequests: %+v", err, out, stderr, api.seen())
	}
	if strings.Contains(out+stderr, canary) {
		t.Error("the key is in the output")
	}
	answered := 0
	for _, r := range api.seen() {
		if got := r.Header.Values("x-goog-api-key"); !slices.Equal(got, []string{canary}) {
			t.Errorf("%s came with the key %q", r.Path, got)
		}
		if strings.Contains(r.Body+r.Query, canary) {
			t.Errorf("%s: the program knows the key", r.Path)
		}
		if strings.Contains(r.Body, `"functionResponse"`) {
			answered++
		}
	}
	if answered == 0 {
		t.Errorf("the model never got the result of its tool: %+v", api.seen())
	}
	if _, err := os.Stat(filepath.Join(project, "made.txt")); err == nil {
		t.Error("the agent wrote to the host's directory")
	}
	if out, stderr, err := crannog("", "exec", "g", "cat", "/workspace/made.txt"); err != nil || out != "by a tool\n" {
		t.Errorf("the file that the tool wrote: got %q, %v, stderr %s", out, err, stderr)
	}
	if out, stderr, err := crannog("", "rm", "-y", "g"); err != nil {
		t.Errorf("remove the sandbox: %v %s %s", err, out, stderr)
	}
}
