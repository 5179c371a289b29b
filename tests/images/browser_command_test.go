package images_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// tallPage is a page that is higher than the window, and ends in blue.
const tallPage = `data:text/html,<title>A tall page</title><body style="margin:0"><div style="height:2999px"></div><div style="height:1px;background:rgb(0,0,255)"></div>`

// testBrowserCommand tries crannog browser: pictures, a PDF, refused pages, and the address for
// clients (P91, P92).
func testBrowserCommand(t *testing.T, state, clients string) {
	t.Helper()
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.json")
	if err := os.WriteFile(policy, []byte(npmPolicy(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (code int, stdout, stderr string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, append([]string{"--state", state, "browser"}, args...)...)
		cmd.Dir = dir
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			if exit, ok := errors.AsType[*exec.ExitError](err); ok {
				return exit.ExitCode(), out.String(), errs.String()
			}
			t.Fatal(err)
		}
		return 0, out.String(), errs.String()
	}
	testScreenshots(t, dir, run)
	code, out, stderr := run("https://"+npmRegistry+"/ms/latest", "--policy", policy, "--pdf", "page.pdf", "--json")
	var captured struct{ Status, Bytes int }
	data, err := os.ReadFile(filepath.Join(dir, "page.pdf"))
	if jsonErr := json.Unmarshal([]byte(out), &captured); err != nil || jsonErr != nil || code != 0 || captured.Status != 200 || captured.Bytes != len(data) || !bytes.HasPrefix(data, []byte("%PDF-")) {
		t.Errorf("a PDF: got %d, %q, %v, %v\n%s", code, out, err, jsonErr, stderr)
	}
	for address, want := range map[string]struct {
		code int
		text string
	}{
		"https://" + npmRegistry + "/left-pad": {4, "blocked GET https://" + npmRegistry + "/left-pad rule="},
		"https://nowhere.example/":             {1, "net::ERR_NAME_NOT_RESOLVED"},
	} {
		code, out, stderr := run(address, "--policy", policy, "--screenshot", "refused.png")
		if code != want.code || out != "" || !strings.Contains(stderr, "cannot open "+address) || !strings.Contains(stderr, want.text) {
			t.Errorf("%s: got %d, %q\n%s\nwant %+v", address, code, out, stderr, want)
		}
		if _, err := os.Stat(filepath.Join(dir, "refused.png")); err == nil {
			t.Errorf("%s: there is a picture", address)
		}
	}
	testOffer(t, policy, state, clients)
}

// testScreenshots takes pictures of the window and of the full page.
func testScreenshots(t *testing.T, dir string, run func(...string) (int, string, string)) {
	t.Helper()
	for name, c := range map[string]struct {
		args          []string
		width, height int
		last          color.Color
	}{
		"window.png": {nil, 1280, 720, color.White},
		"full.png":   {[]string{"--full-page", "--size", "400x300"}, 400, 3000, color.RGBA{0, 0, 255, 255}},
	} {
		code, out, stderr := run(append([]string{tallPage, "--screenshot", name, "--json"}, c.args...)...)
		if code != 0 || !strings.Contains(out, `"title":"A tall page"`) {
			t.Errorf("%s: got %d, %q\n%s", name, code, out, stderr)
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(bytes.NewReader(data))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		size := img.Bounds().Size()
		if size.X != c.width || size.Y != c.height {
			t.Errorf("%s: got %v, want %dx%d", name, size, c.width, c.height)
			continue
		}
		if got := color.RGBAModel.Convert(img.At(size.X/2, size.Y-1)); got != color.RGBAModel.Convert(c.last) {
			t.Errorf("%s: the last line is %v, want %v", name, got, c.last)
		}
	}
}

// testOffer connects the clients to the address that the command prints, and interrupts it.
func testOffer(t *testing.T, policy, state, clients string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "--state", state, "browser", tallPage, "--policy", policy, "--json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var offer struct{ Sandbox, CDP string }
	if err := json.NewDecoder(stdout).Decode(&offer); err != nil {
		t.Fatalf("the command printed no address: %v, %v\n%s", err, cmd.Wait(), stderr.String())
	}
	node := exec.CommandContext(t.Context(), "node", "connect.mjs")
	node.Dir = clients
	node.Env = append(os.Environ(), "CRANNOG_CDP="+offer.CDP, "CRANNOG_DENIED=https://"+npmRegistry+"/left-pad")
	out, err := node.CombinedOutput()
	var seen struct {
		Titles  []string
		Refusal struct {
			Status            int
			Title, Text, Type string
		}
		Version string
	}
	if jsonErr := json.Unmarshal(out, &seen); err != nil || jsonErr != nil {
		t.Errorf("the clients: %v, %v\n%s", err, jsonErr, out)
	}
	if !strings.Contains(strings.Join(seen.Titles, ","), "A tall page") || !strings.Contains(seen.Version, "Chrom") {
		t.Errorf("the clients saw %+v", seen)
	}
	r := seen.Refusal
	if r.Status != 403 || r.Title != "Crannog blocked this page" || !strings.HasPrefix(r.Type, "text/html") || !strings.Contains(r.Text, npmRegistry+"/left-pad") || !strings.Contains(r.Text, "Rule") {
		t.Errorf("the refused page: got %+v", r)
	}
	if !listed(t, state, offer.Sandbox) {
		t.Error("control: the sandbox is not listed before the end")
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after an interrupt: %v\n%s", err, stderr.String())
	}
	if listed(t, state, offer.Sandbox) {
		t.Error("the sandbox is still listed after the end")
	}
}

// listed reports whether the owner of the state directory sees a sandbox.
func listed(t *testing.T, state, id string) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, "--state", state, "ls", "--all", "--quiet").CombinedOutput()
	if err != nil {
		t.Fatalf("ls: %v\n%s", err, out)
	}
	return strings.Contains(string(out), id)
}
