package drill

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// attempt is one run of an attack.
type attempt struct {
	*drill
	Scenario
	token, dir, workspace, host string
	output                      string
}

// attempt prepares the files of an attack, with a token of its own.
func (d *drill) attempt(_ context.Context, s Scenario) (*attempt, error) {
	dir, err := os.MkdirTemp(d.files, "attempt-")
	if err != nil {
		return nil, err
	}
	a := &attempt{drill: d, Scenario: s, dir: dir, token: "drill" + strings.ToLower(rand.Text()), workspace: filepath.Join(dir, "workspace"), host: filepath.Join(dir, "host")}
	//nolint:gosec // every user may read the host's secret: only the sandbox protects it
	err = errors.Join(os.Chmod(dir, 0o755), os.Mkdir(a.workspace, 0o755), os.Mkdir(a.host, 0o755),
		os.WriteFile(filepath.Join(a.host, "secret"), []byte(a.token+"\n"), 0o644))
	for name, text := range s.Files {
		file := filepath.Join(a.workspace, name)
		err = errors.Join(err, os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(a.expand(text)), 0o755)) //nolint:gosec // as above
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return a, nil
}

func (a *attempt) remove() { _ = os.RemoveAll(a.dir) }

func (a *attempt) expand(text string) string {
	return strings.NewReplacer("{{token}}", a.token, "{{host}}", a.host, "{{state}}", filepath.Join(filepath.Dir(a.files), "state")).Replace(text)
}

// onHost makes the attack without a sandbox, inside the drill's namespaces.
func (a *attempt) onHost(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds(a.Control.Settings)*float64(time.Second)))
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", a.expand(a.Attack)) //nolint:gosec // a scenario is a script
	cmd.Dir = a.workspace
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + a.dir}
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	a.output = string(out)
	if _, exit := errors.AsType[*exec.ExitError](err); exit {
		return nil // the goal decides
	}
	return err
}

// await waits until a control has reached its goal.
func (a *attempt) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, arrival)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := a.succeeded()
		if ok || err != nil {
			return err
		}
		if a.Goal != Received {
			return errors.New("the attack did not reach its goal without the defence either, so it proves nothing")
		}
		select {
		case <-ctx.Done():
			return errors.New("no server received the token without the defence either, so it proves nothing")
		case <-tick.C:
		}
	}
}

// succeeded reports whether the attack reached its goal.
func (a *attempt) succeeded() (bool, error) {
	switch a.Goal {
	case Received:
		return a.net.got(a.token), nil
	case Changed:
		return containsToken(a.workspace, a.token)
	default:
		return strings.Contains(a.output, a.token), nil
	}
}
