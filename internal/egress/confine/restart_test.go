//go:build cgo && !race

package confine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/egress/confine"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// programRestarts reports whether a program restarts to be confined.
const programRestarts = true

// The restarted program detects each right that was not removed before the restart.
func TestRestartDetectsRemainingRights(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for step, want := range map[string]string{
		"":       "", // Control: nothing is forgotten
		"limits": "is limited to", "secure bits": "secure bits are", "bounding set": "may gain", "user": "is root", "files": "can read files",
	} {
		_, _, out := start(t, "confine-forgetful", nil, step)
		output, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.TrimSpace(string(output))
		if want == "" && text != "no rights left" || want != "" && (!strings.Contains(text, "too many rights") || !strings.Contains(text, want)) {
			t.Errorf("without the step %q the program reports %q, want %q", step, text, want)
		}
	}
}

// Setting only the variable does not make a process skip the steps.
func TestBeginDoesNotTrustVariable(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, value := range []string{"", "{", `{"uid":0}`, `{"uid":0,"secured":true,"bounded":true}`, `{"uid":1000}`} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args = []string{"confine-hog"}
		cmd.Env = []string{confine.Variable + "=" + value}
		output, err := cmd.CombinedOutput()
		if err != nil || !bytes.Contains(output, []byte("confine: ")) || bytes.Contains(output, []byte("small")) {
			t.Errorf("with the variable %q the program prints %q, %v, want an error of confine", value, output, err)
		}
	}
}

// A program that only its owner may execute, in a directory that only root may enter, is confined
// too.
func TestProgramOfOneOwnerIsConfined(t *testing.T) {
	hosttest.Need(t, hosttest.Root)
	for _, owner := range []int{0, 1000, nobody} {
		dir := t.TempDir()
		path := filepath.Join(dir, "program")
		data, err := os.ReadFile("/proc/self/exe")
		if err := errors.Join(err, os.WriteFile(path, data, 0o700), os.Chown(path, owner, owner), os.Chmod(path, 0o700), os.Chmod(dir, 0o700)); err != nil {
			t.Fatal(err)
		}
		testProgram = path
		t.Cleanup(func() { testProgram = "/proc/self/exe" })
		_, in, out := start(t, "confine-probe", nil)
		line, err := out.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		var got result
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatalf("owner %d: the result of the probe is not JSON: %v: %s", owner, err, line)
		}
		if got.Report.UID != nobody || !got.BornHidden && owner != nobody {
			t.Errorf("owner %d: the report is %+v, hidden %t", owner, got.Report, got.BornHidden)
		}
		in.Close()
	}
}

// skipStep removes all rights but those of the step that is its argument, and prints whether the
// restarted program would detect that.
func skipStep() {
	if err := confine.InheritedWithout(rules, os.Args[3]); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("no rights left")
}
