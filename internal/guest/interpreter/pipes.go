package interpreter

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/crannog/crannog/internal/fault"
)

// defaultPath is the PATH for finding interpreters if the environment has none.
const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// childEnds are the worker's ends of its pipes.
type childEnds struct {
	lang                                    *language
	requests, control, acks, stdout, stderr *os.File
}

// open creates the pipes. Standard output and error have pipes of their own, so that no output can
// be mistaken for a protocol message.
func (w *worker) open() (childEnds, error) {
	child := childEnds{lang: w.lang}
	var stdout, stderr *os.File
	var err error
	for _, p := range []struct{ read, write **os.File }{
		{&child.requests, &w.requests}, {&w.control, &child.control}, {&child.acks, &w.acks},
		{&stdout, &child.stdout}, {&stderr, &child.stderr},
	} {
		if *p.read, *p.write, err = os.Pipe(); err != nil {
			break
		}
	}
	if err == nil {
		err = w.capture(stdout, "stdout")
	}
	if err == nil {
		err = w.capture(stderr, "stderr")
	}
	if err != nil {
		child.close()
		closeAll(w.requests, w.control, w.acks, stdout, stderr)
	}
	return child, err
}

// capture reads one output stream of the worker.
func (w *worker) capture(file *os.File, kind string) error {
	o, err := newOutput(file, func(b []byte) { w.text(kind, b) })
	if err == nil {
		w.outputs = append(w.outputs, o)
	}
	return err
}

// closePipes closes the server's ends. Processes that the code started may hold the other ends
// open, so it does not wait for their end.
func (w *worker) closePipes() {
	closeAll(w.requests, w.control, w.acks)
	for _, o := range w.outputs {
		closeAll(o.file)
	}
}

// command returns the worker's command.
func (c childEnds) command(program Program, dir string, env map[string]string) *exec.Cmd {
	args := program.Argv
	if args == nil {
		args = append([]string{filepath.Base(program.Path)}, c.lang.args...)
	}
	cmd := &exec.Cmd{
		Path: program.Path, Args: args, Dir: dir,
		Stdout: c.stdout, Stderr: c.stderr,
		// A new session has no controlling terminal. Its process group allows an interrupt to reach
		// the programs that the code started.
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		cmd.Env = append(cmd.Env, k+"="+env[k])
	}
	if c.lang.stdin {
		cmd.Stdin = c.requests
		cmd.ExtraFiles = []*os.File{nil, c.control, c.acks}
	} else {
		cmd.ExtraFiles = []*os.File{c.requests, c.control, c.acks}
	}
	cmd.ExtraFiles = append(cmd.ExtraFiles, program.Files...)
	return cmd
}

func (c childEnds) close() { closeAll(c.requests, c.control, c.acks, c.stdout, c.stderr) }

// closeAll closes pipes. Errors do not matter: closing a pipe twice is harmless and no data is
// unwritten.
func closeAll(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close()
		}
	}
}

// lookProgram finds the interpreter in the PATH that the code will have, not in the guest's.
func lookProgram(lang *language, env map[string]string) (string, error) {
	path := env["PATH"]
	if path == "" {
		path = defaultPath
	}
	for dir := range strings.SplitSeq(path, ":") {
		file := filepath.Join(dir, lang.program)
		if info, err := os.Stat(file); filepath.IsAbs(dir) && err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fault.Newf(fault.Unsupported, "language_not_installed",
		"This sandbox cannot run %s: there is no %s in %s.", lang.name, lang.program, path)
}

// startError explains why a worker did not start in dir. If the sandbox's user may not enter the
// directory, it is an error of the client.
func startError(lang *language, dir string, err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok && p.Op == "chdir" {
		return fault.Wrap(err, fault.Invalid, "bad_cwd", fmt.Sprintf(
			"The working directory %q cannot be entered by the sandbox's user: %v.", truncate(dir, 200), p.Err))
	}
	return fault.Wrap(err, fault.Unavailable, "worker_not_started",
		fmt.Sprintf("The %s worker could not be started: %v", lang.name, err))
}

// checkDir returns an error if dir is not an absolute path of a directory.
func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if !filepath.IsAbs(dir) || err != nil || !info.IsDir() {
		return fault.Newf(fault.Invalid, "bad_cwd", "The working directory %q is not a directory in this sandbox.", truncate(dir, 200))
	}
	return nil
}
