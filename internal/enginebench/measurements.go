package enginebench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/host/meminfo"
)

// measurement is one figure of the report.
type measurement struct {
	id, title, unit string
	// programs must be installed where the measurement is made.
	programs []string
	// sandboxOnly is true if the measurement makes no sense on the host.
	sandboxOnly bool
	// ownSandboxes is true if do creates its sandboxes itself, so that none has to run before.
	ownSandboxes bool
	// atMost bounds the number of rounds of a measurement that takes long, and leaves out the round
	// that is not counted; 0 is no bound.
	atMost int
	// reaches adds what programs may reach to the request for a sandbox.
	reaches func(Options, *Want)
	// setup runs once in each place before the first round.
	setup func(context.Context, *run, *place) error
	// do makes the measurement once.
	do func(context.Context, *run, *place) (value float64, note string, err error)
}

func (m measurement) rounds(n int) int {
	if m.atMost > 0 {
		return min(n, m.atMost)
	}
	return n
}

// first returns the number of the first round. Negative rounds are not counted.
func (m measurement) first() int {
	if m.atMost > 0 {
		return 0
	}
	return -1
}

// command returns a measurement of the time that a command takes.
func command(id, title string, programs []string, argv func(*place) []string) measurement {
	return measurement{id: id, title: title, unit: "ms", programs: programs,
		do: func(ctx context.Context, _ *run, p *place) (float64, string, error) {
			took, err := timed(func() error { _, err := p.run(ctx, argv(p)...); return err })
			return took, "", err
		}}
}

// fixed returns a command line that is the same in every place.
func fixed(argv ...string) func(*place) []string { return func(*place) []string { return argv } }

// script returns a command line that runs a shell script in the place's directory.
func script(text string) func(*place) []string {
	return func(p *place) []string { return []string{"sh", "-c", "cd \"$1\"\n" + text, "sh", p.path("")} }
}

const (
	// loop computes without system calls.
	loop = `BEGIN { for (i = 0; i < 5000000; i++) s = (s * 31 + i) % 1000003; print s }`
	// manyFiles creates, reads and removes 10,000 files.
	manyFiles = `mkdir many && cd many
i=0; while [ $i -lt 10000 ]; do echo $i > f$i; i=$((i+1)); done
[ "$(cat f* | wc -l)" = 10000 ] || exit 1
cd .. && rm -r many`
	// makeRepository makes a git repository of 20 commits with 50 files each.
	makeRepository = `git init -q repository && cd repository
git config user.email bench@localhost && git config user.name bench
c=0; while [ $c -lt 20 ]; do
  mkdir d$c; i=0; while [ $i -lt 50 ]; do echo $c $i > d$c/f$i; i=$((i+1)); done
  git add . && git commit -q -m "commit $c"; c=$((c+1))
done`
	cloneRepository = `git clone -q --no-hardlinks repository clone && rm -rf clone`
	install         = `rm -rf node_modules && npm ci --silent --no-audit --no-fund`
)

// measurements returns what can be measured with these options, in the order of the report.
func measurements(o Options) []measurement {
	all := []measurement{
		{id: "create", title: "create a sandbox and run echo, cold", unit: "ms", ownSandboxes: true, do: create},
		{id: "create-again", title: "the same with options that were used before", unit: "ms", ownSandboxes: true, sandboxOnly: true, do: createAgain},
		command("exec", "true in a running sandbox", nil, fixed("true")),
		command("python", "python3 -c pass", []string{"python3"}, fixed("python3", "-c", "pass")),
		command("node", "node -e 0", []string{"node"}, fixed("node", "-e", "0")),
		command("compute", "a loop that only computes", []string{"awk"}, fixed("awk", loop)),
		command("files", "10,000 small files: write, read, remove", nil, script(manyFiles)),
	}
	clone := command("git-clone", "git clone of 1,000 files", []string{"git"}, script(cloneRepository))
	clone.setup = func(ctx context.Context, _ *run, p *place) error {
		_, err := p.run(ctx, script(makeRepository)(p)...)
		return err
	}
	all = append(all, clone)
	if o.Project != "" {
		npm := command("npm-ci", "npm ci of the project", []string{"npm"}, script(install))
		npm.reaches = func(_ Options, w *Want) { w.Packages = true }
		npm.setup = copyProject
		all = append(all, npm)
	}
	if o.URL != "" {
		request := command("request", "a request with curl", []string{"curl"}, fixed("curl", "-sS", "-o", "/dev/null", o.URL))
		request.reaches = reachURL
		all = append(all, request)
	}
	all = append(all,
		measurement{id: "snapshot", title: "snapshot", unit: "ms", sandboxOnly: true, do: snapshot},
		measurement{id: "fork", title: "fork", unit: "ms", sandboxOnly: true, do: fork})
	if !o.Remote {
		all = append(all, measurement{id: "memory", title: "memory of an idle sandbox", unit: "MB", sandboxOnly: true, ownSandboxes: true, atMost: 3, do: memory})
	}
	return all
}

// create measures the time from the request to the output of the first command.
func create(ctx context.Context, r *run, p *place) (took float64, note string, err error) {
	if p.isHost() {
		took, err = timed(func() error { _, err := p.run(ctx, "echo", "ok"); return err })
		return took, "", err
	}
	took, err = r.life(ctx, r.want(p, measurement{}))
	return took, "", err
}

// refillTime is how long a server has to make a sandbox ready for the next request.
const refillTime = time.Second

// createAgain repeats a request with equal options, which a server may answer from its warm pool.
func createAgain(ctx context.Context, r *run, p *place) (float64, string, error) {
	if !r.lab.Warm() {
		return 0, "", errAbsent("needs a server with a warm pool")
	}
	select {
	case <-ctx.Done():
		return 0, "", ctx.Err()
	case <-time.After(refillTime):
	}
	want := r.want(p, measurement{})
	want.MemoryBytes = 0
	took, err := r.life(ctx, want)
	return took, "", err
}

// life creates a sandbox, runs a command, and removes the sandbox, which does not count.
func (r *run) life(ctx context.Context, want Want) (took float64, err error) {
	var sb Sandbox
	took, err = timed(func() error {
		if sb, err = r.lab.Create(ctx, want); err != nil {
			return err
		}
		_, err := sb.Run(ctx, "echo", "ok")
		return err
	})
	if sb != nil {
		err = errors.Join(err, sb.Remove(context.WithoutCancel(ctx)))
	}
	return took, err
}

func snapshot(ctx context.Context, _ *run, p *place) (took float64, saved string, err error) {
	took, err = timed(func() error { saved, err = p.live.Snapshot(ctx); return err })
	return took, saved, err
}

func fork(ctx context.Context, _ *run, p *place) (took float64, copied string, err error) {
	took, err = timed(func() error { copied, err = p.live.Fork(ctx); return err })
	return took, copied, err
}

// copyProject copies the two files of an npm project that npm ci reads.
func copyProject(ctx context.Context, r *run, p *place) error {
	for _, name := range []string{"package.json", "package-lock.json"} {
		content, err := os.ReadFile(filepath.Join(r.options.Project, name))
		if err != nil {
			return err
		}
		if err := p.write(ctx, name, content); err != nil {
			return err
		}
	}
	return nil
}

// reachURL lets programs reach the host of the URL that is fetched.
func reachURL(o Options, w *Want) {
	if u, err := url.Parse(o.URL); err == nil {
		w.Host = strings.TrimSuffix(u.Host, ":443")
	}
}

// idleSandboxes is how many sandboxes share the memory that is measured.
const idleSandboxes = 4

// settleTime is how long sandboxes are idle before their memory is measured: some memory that only
// the start needed is released later.
const settleTime = 3 * time.Second

// memory measures by how much the host's available memory falls for each idle sandbox. It counts
// everything that an engine needs for one, also in processes of another program such as dockerd,
// and all other changes on the host at that time.
func memory(ctx context.Context, r *run, p *place) (mb float64, note string, err error) {
	before, err := meminfo.Available()
	if err != nil {
		return 0, "", err
	}
	var alive []Sandbox
	defer func() {
		for _, sb := range alive {
			err = errors.Join(err, sb.Remove(context.WithoutCancel(ctx)))
		}
	}()
	for range idleSandboxes {
		sb, err := r.lab.Create(ctx, r.want(p, measurement{}))
		if err != nil {
			return 0, "", err
		}
		alive = append(alive, sb)
	}
	select {
	case <-ctx.Done():
		return 0, "", ctx.Err()
	case <-time.After(settleTime):
	}
	after, err := meminfo.Available()
	if err != nil {
		return 0, "", err
	}
	each := float64(before-after) / idleSandboxes
	if each <= 0 {
		return each / 1e6, "other programs released more memory than the sandboxes used", nil
	}
	return each / 1e6, fmt.Sprintf("about %d fit into the available memory", int(float64(before)/each)), nil
}
