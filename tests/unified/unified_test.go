// Package unified_test boots the stock kernel of Debian 12 in an emulated machine and runs tests
// about control groups there. The machine has all controllers only in cgroup version 2, as most
// hosts have.
package unified_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crannog/crannog/internal/host/reexec"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/programtest"
)

var (
	all  = flag.Bool("all", false, "run also the steps that take minutes")
	only = flag.String("only", "", "run only steps whose name matches this pattern")
)

func TestMain(m *testing.M) {
	reexec.Dispatch(
		reexec.Role{Match: func(args []string) bool { return os.Getpid() == 1 && slices.Contains(args, firstArg) }, Run: runFirstProcess},
		reexec.Role{Match: reexec.Arg0(runnerArg0), Run: runSteps},
	)
	os.Exit(m.Run())
}

var kernel = hosttest.Requirement{Name: "kernel for an emulated machine (tests/unified/kernel.sh fetches it)", Has: func() bool {
	_, err := os.Stat(filepath.Join(kernelDir, "vmlinuz"))
	return err == nil
}}

// asUser defines a shell function that runs a command as a user who owns nothing, in a given
// control group.
const asUser = `
as() {
  mkdir -p /run/user-home && chown 61237:61237 /run/user-home
  group=$1; shift
  (cd /run/user-home; echo $BASHPID > $group/cgroup.procs; unset CRANNOG_STATE; HOME=/run/user-home exec setpriv --reuid 61237 --regid 61237 --clear-groups "$@")
}
`

// delegateGroup creates a subtree as systemd delegates it to a user, with a group below for the
// user's programs.
const delegateGroup = asUser + `
slice=/sys/fs/cgroup/user.slice
mkdir -p $slice/user@.service/app.slice/one.scope
echo '+cpu +memory +pids' > $slice/cgroup.subtree_control
for dir in user@.service user@.service/app.slice user@.service/app.slice/one.scope; do
  chown 61237:61237 $slice/$dir $slice/$dir/cgroup.{procs,threads,subtree_control}
done
scope=$slice/user@.service/app.slice/one.scope
`

// useMemory is a command that uses 160 MiB of memory.
const useMemory = `python3 -c "x = b'x' * (160 << 20); print(len(x) >> 20)"`

// conformance returns a command that runs some of gVisor's conformance tests.
func conformance(pattern string) string {
	return `gvisor.test -test.v -test.count=1 -test.timeout 30m -test.run '` + pattern + `'`
}

// steps have time limits that only bound hangs: on a busy host the machine takes several times as
// long.
var steps = []step{
	{Name: "groups", Script: "cgroup.test -test.v -test.count=1 -test.timeout 9m", Timeout: 10 * time.Minute, want: []string{
		"--- PASS: TestStartIntoUnified", "--- PASS: TestMemoryLimit", "--- PASS: TestProcessorLimit",
		"--- PASS: TestMemoryLimitKillsWholeGroup", "--- PASS: TestSettingsReachKernel",
		"--- PASS: TestDelegationToUser", "--- PASS: TestDelegationToService", "--- PASS: TestDelegationIncomplete",
	}, not: []string{"--- SKIP"}},
	{Name: "doctor", Script: "crannog doctor", Timeout: 6 * time.Minute, long: true,
		want: []string{"version 2, below /sys/fs/cgroup/crannog", "memory", "cpu"}, not: []string{"no writable cgroup"}},
	{Name: "run", Script: `crannog run --json --memory 512m -- ` + useMemory + `; crannog run --json --memory 128m -- ` + useMemory + ` && exit 1; test $? = 137
		ls -d /sys/fs/cgroup/crannog/*/ && exit 1 || echo no groups`, Timeout: 15 * time.Minute,
		want: []string{`"stdout":"160\n"`, `"hit":"oom"`, "no groups"}},
	{Name: "limits", Script: conformance("^TestConformance$/^limits$"), Timeout: 30 * time.Minute, long: true, want: []string{
		"--- PASS: TestConformance/limits/memory-ends-the-sandbox-with-a-reason", "--- PASS: TestConformance/limits/cpu-is-bounded",
		"--- PASS: TestConformance/limits/processes-are-bounded", "--- PASS: TestConformance/limits/disk-is-full-at-the-limit",
	}, not: []string{"--- SKIP"}},
	{Name: "delegated", Script: delegateGroup + `
		as $scope crannog doctor
		as $scope crannog run --json --cpus 0.5 --memory 128m -- ` + useMemory + ` && exit 1; test $? = 137
		cat $slice/user@.service/crannog/cgroup.controllers`, Timeout: 15 * time.Minute, long: true,
		want: []string{"version 2, below /sys/fs/cgroup/user.slice/user@.service/crannog", `"hit":"oom"`}, not: []string{"no writable cgroup"}},
	{Name: "not delegated", Script: asUser + `
		mkdir -p /sys/fs/cgroup/user.slice/session.scope
		as /sys/fs/cgroup/user.slice/session.scope crannog doctor
		as /sys/fs/cgroup/user.slice/session.scope crannog run --cpus 0.5 -- true || echo exit $?
		as /sys/fs/cgroup/user.slice/session.scope crannog run --json --memory 128m -- ` + useMemory + ` && exit 1; test $? = 137`, Timeout: 15 * time.Minute, long: true,
		want: []string{"no writable cgroup", "limit_not_enforced", `"hit":"oom"`}},
	{Name: "lives", Script: conformance("^TestConformance$/^(lifecycle|restart|leaks)$"), Timeout: 30 * time.Minute, long: true, want: []string{
		"--- PASS: TestConformance/leaks/cycles-leave-nothing", "--- PASS: TestConformance/restart/another-process-finds-the-sandbox",
	}, not: []string{"--- SKIP"}},
	{Name: "copies", Script: conformance("^TestConformance$/^state$/^a-copy-has-a-separate-group$"), Timeout: 15 * time.Minute, long: true, want: []string{
		"--- PASS: TestConformance/state/a-copy-has-a-separate-group",
	}, not: []string{"--- SKIP"}},
	{Name: "weights", Script: `gvisor.test -test.v -test.count=1 -test.run '^TestUnhurriedSandboxHasLowWeight$'`, Timeout: 9 * time.Minute, long: true,
		want: []string{"--- PASS: TestUnhurriedSandboxHasLowWeight"}, not: []string{"--- SKIP"}},
}

// P6, P8, P14: limits hold on a stock kernel with only cgroup version 2: for root, for a user with
// a delegated subtree, and as far as documented for a user without.
func TestUnified(t *testing.T) {
	hosttest.Need(t, hosttest.Program(emulator), kernel, hosttest.Python, hosttest.Bash, hosttest.Program("setpriv"))
	chosen, err := regexp.Compile(*only)
	if err != nil {
		t.Fatal(err)
	}
	p := plan{}
	for _, s := range steps {
		if chosen.MatchString(s.Name) && (*all || !s.long) {
			p.Steps = append(p.Steps, s)
		}
	}
	p.Programs = programs(t, p.Steps)
	outcomes := boot(t, p)
	for _, s := range p.Steps {
		t.Run(s.Name, func(t *testing.T) {
			o := outcomes[s.Name]
			if o.Code != s.code || o.Problem != "" {
				t.Errorf("got exit code %d, want %d %s", o.Code, s.code, o.Problem)
			}
			for _, want := range s.want {
				if !strings.Contains(o.output, want) {
					t.Errorf("the output lacks %q", want)
				}
			}
			for _, not := range s.not {
				if strings.Contains(o.output, not) {
					t.Errorf("the output has %q", not)
				}
			}
			t.Logf("after %s:\n%s", o.Took.Round(time.Millisecond), o.output)
		})
	}
}

// programs builds the programs that the steps run in the machine.
func programs(t *testing.T, steps []step) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // a user in the machine runs them too
		t.Fatal(err)
	}
	if _, err := programtest.Place(dir); err != nil {
		t.Fatal(err)
	}
	for name, pkg := range map[string]string{
		"cgroup.test": "../../internal/engine/linux/cgroup",
		"gvisor.test": "../../internal/engine/gvisor",
	} {
		if !slices.ContainsFunc(steps, func(s step) bool { return strings.Contains(s.Script, name) }) {
			continue
		}
		cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", filepath.Join(dir, name), pkg)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
	}
	return dir
}
