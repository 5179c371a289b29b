// Package telemetry_test uses a real server that sends traces and metrics to a receiver of the test.
package telemetry_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

var program string

func TestMain(m *testing.M) { os.Exit(servetest.Main(m, &program)) }

const (
	callerTrace = "0af7651916cd43dd8448eb211c80319c"
	callerSpan  = "b7ad6b7169203331"
)

// Values that must not be in any telemetry.
const (
	inCommand = "canary-of-the-command-line"
	inQuery   = "canary-of-a-query"
	inPath    = "canary-of-a-path"
	inOutput  = "canary-of-the-output"
	inEnv     = "canary-of-the-environment"
	inHost    = "canary-host.example"
	inHeader  = "canary-of-the-receivers-key"
	// inResource is the positive control: it is configured to be in every message.
	inResource = "canary-of-the-resource"
)

type rig struct {
	*servetest.Server
	*receiver
}

func (r rig) call(t *testing.T, method, path, body string, header http.Header, out any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, r.Server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-API-KEY", r.Key)
	req.Header.Set("Content-Type", "application/json")
	maps.Copy(req.Header, header)
	res, err := new(http.Client).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%s %s: got %d %v: %s", method, path, res.StatusCode, err, data)
	}
	if text, ok := out.(*string); ok {
		*text = string(data)
	} else if out != nil {
		if err := json.Unmarshal(data, out); err != nil {
			t.Fatalf("%s: %s", err, data)
		}
	}
}

// TestTelemetryOfAServer follows a request of a caller into a sandbox and out of it, and checks that
// nothing of what the sandbox does is in what leaves the server (P97).
func TestTelemetryOfAServer(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	receiver := newReceiver(t)
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_HEADERS": "api-key=" + inHeader, "OTEL_RESOURCE_ATTRIBUTES": "team=" + inResource,
		"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_METRIC_EXPORT_INTERVAL": "200",
	} {
		t.Setenv(name, value)
	}
	r := rig{servetest.Start(t, program, filepath.Join(t.TempDir(), "state"), "--log-format", "json", "--otlp-endpoint", receiver.URL), receiver}
	traced := http.Header{"Traceparent": {"00-" + callerTrace + "-" + callerSpan + "-01"}}
	var sb struct {
		ID string `json:"id"`
	}
	r.call(t, "POST", "/v1/sandboxes", `{"access":{"allow":["allowed.example"]}}`, traced, &sb)
	var result struct {
		Stdout string `json:"stdout"`
	}
	script := `echo ` + inOutput + ` $TRACEPARENT; getent hosts ` + inHost + `; : http://` + inHost + `/` + inPath + `?token=` + inQuery + `; true`
	body, err := json.Marshal(map[string]any{"cmd": []string{"sh", "-c", script, inCommand}, "env": map[string]string{"SECRET": inEnv}})
	if err != nil {
		t.Fatal(err)
	}
	r.call(t, "POST", "/v1/sandboxes/"+sb.ID+"/exec", string(body), traced, &result)

	create := r.wait(t, "create", func(s span) bool { return s.Name == "v1 sandboxes-create" })
	if create.TraceID != callerTrace || create.Parent != callerSpan {
		t.Errorf("the request does not continue the caller's trace: %+v", create)
	}
	action := r.wait(t, "action create", func(s span) bool { return s.Name == "action create" && s.Parent == create.SpanID })
	if action.attribute("crannog.sandbox") != sb.ID || action.attribute("crannog.source") != "engine" || action.attribute("crannog.engine") == "" {
		t.Errorf("got %+v", action)
	}
	r.wait(t, "a step of the boot", func(s span) bool { return s.Parent == action.SpanID })
	command := r.wait(t, "command", func(s span) bool { return s.Name == "command" })
	if command.TraceID != callerTrace || command.attribute("crannog.sandbox") != sb.ID || command.attribute("crannog.exit_code") != "0" || command.attribute("crannog.how") != "exec" {
		t.Errorf("got %+v", command)
	}
	decision := r.wait(t, "decision", func(s span) bool { return s.Name == "egress.decision" })
	if decision.TraceID != callerTrace || decision.Parent != command.SpanID || decision.attribute("crannog.effect") != "deny" || decision.attribute("crannog.flow") != "dns" {
		t.Errorf("got %+v, want a denied lookup below the command", decision)
	}
	// The program has the IDs of its request, and the log those of the trace.
	if !strings.Contains(result.Stdout, inOutput+" 00-"+callerTrace+"-") {
		t.Errorf("the command got no trace: %q", result.Stdout)
	}
	checkLog(t, r.Stderr())
	checkDashboards(t, r)
	checkHealth(t, r)
	r.call(t, "DELETE", "/v1/sandboxes/"+sb.ID, "", nil, nil)
	r.Stop(t)
	checkNothingSecret(t, r)
}

func checkLog(t *testing.T, log string) {
	t.Helper()
	for line := range strings.Lines(log) {
		if strings.HasPrefix(line, "crannog: ") {
			continue // a note of the command line, before the server starts
		}
		var entry struct {
			Message string `json:"msg"`
			Trace   string `json:"trace_id"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("the log has a line that is not JSON: %s", line)
		}
		if entry.Message == "sandbox created" && entry.Trace != callerTrace {
			t.Errorf("got trace %q in %s", entry.Trace, line)
		}
	}
	if !strings.Contains(log, "sandbox created") {
		t.Errorf("no line about the creation in\n%s", log)
	}
}

// checkNothingSecret looks for the canaries. The program knew them all: the audit log, which stays
// on the machine, has the command line.
func checkNothingSecret(t *testing.T, r rig) {
	t.Helper()
	sent := r.text()
	if !strings.Contains(sent, inResource) {
		t.Error("the positive control is not in the messages")
	}
	for _, canary := range []string{inCommand, inQuery, inPath, inOutput, inEnv, inHost, inHeader, r.Key} {
		if strings.Contains(sent, canary) {
			t.Errorf("%s is in a message", canary)
		}
		if strings.Contains(r.Stderr(), canary) {
			t.Errorf("%s is in the log", canary)
		}
	}
	out, err := exec.CommandContext(t.Context(), program, "audit", "export", "--state", r.State).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(inCommand)) || !bytes.Contains(out, []byte(inHost)) {
		t.Errorf("the audit log does not have the command line: %v", err)
	}
	for _, key := range r.keys {
		if key != inHeader {
			t.Errorf("a message has the key %q", key)
		}
	}
}

var metricName = regexp.MustCompile(`crannog_[a-z_]+`)

// checkDashboards checks that the metrics of a used server are what the dashboard and the alert rules
// use, and what the receiver gets.
func checkDashboards(t *testing.T, r rig) {
	t.Helper()
	var text string
	r.call(t, "GET", "/v1/metrics", "", nil, &text)
	if hosttest.Full() { // make test-packages, which needs promtool
		checkFormat(t, text)
	}
	families := map[string]bool{}
	var kinds []string
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[1] == "TYPE" {
			kinds = append(kinds, fields[2])
			families[fields[2]] = true
			if fields[3] == "histogram" {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					families[fields[2]+suffix] = true
				}
			}
		}
	}
	for _, file := range []string{"deploy/prometheus/alerts.yaml", "deploy/grafana/crannog.json", "docs/reference/telemetry.md"} {
		data, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		used := metricName.FindAllString(string(data), -1)
		if len(used) < 10 {
			t.Errorf("%s uses %d metrics", file, len(used))
		}
		for _, name := range used {
			if !families[name] {
				t.Errorf("%s uses %s, which the server does not have", file, name)
			}
		}
		for _, name := range kinds {
			if strings.HasSuffix(file, ".md") && !slices.Contains(used, name) {
				t.Errorf("%s does not describe %s", file, name)
			}
		}
	}
	for _, series := range []string{
		`crannog_command_seconds_count{how="exec",outcome="ok"} 1`, `crannog_action_seconds_count{action="create",outcome="ok"} 1`,
		`crannog_sandboxes{state="running"} 1`, `crannog_egress_decisions_total{flow="dns",effect="deny",rule="`,
	} {
		if !strings.Contains(text, series) {
			t.Errorf("no series %s in\n%s", series, text)
		}
	}
	// The receiver gets the same families.
	late := hosttest.Late()
	for !strings.Contains(r.text(), `"name":"crannog_egress_decisions_total"`) {
		select {
		case <-r.received:
		case <-late:
			t.Fatal("the receiver got no metrics")
		}
	}
}

// checkFormat lets Prometheus's own tool check the text of the metrics, and that it finds a mistake.
func checkFormat(t *testing.T, text string) {
	t.Helper()
	check := func(text string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
		cmd.Stdin = strings.NewReader(text)
		return cmd.CombinedOutput()
	}
	if out, err := check(text); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	if out, err := check(text + "no value\n"); err == nil {
		t.Errorf("promtool accepts a broken line: %s", out)
	}
}

func checkHealth(t *testing.T, r rig) {
	t.Helper()
	var alive string
	anonymous := http.Header{"X-Api-Key": nil}
	r.call(t, "GET", "/healthz", "", anonymous, &alive)
	var ready struct {
		Ready bool `json:"ready"`
	}
	r.call(t, "GET", "/readyz", "", anonymous, &ready)
	if alive != "ok\n" || !ready.Ready {
		t.Errorf("healthz %q, readyz %+v", alive, ready)
	}
}
