package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/crannog/crannog"
)

// holdVerb is the command line of the process that holds a detached command.
const holdVerb = "hold-detached"

// startedLine is written by that process when the command has started. If the process exits without
// writing it, it has already printed the error.
const startedLine = "started\n"

// holderReport is the descriptor for startedLine: the first one after the standard streams, which
// is the first of ExtraFiles.
const holderReport = 3

// holder is the background process of a detached command. It creates the sandbox and stays until
// the command ends. Without a server no other process receives the command's output and exit code.
// It also creates the sandbox, because the creating process owns the sandbox's channel: a sandbox
// with streams outside of the channel can be neither paused nor saved.
type holder struct{ report *os.File }

// detach starts the holder with this command line, and returns when the command runs.
func (a runVerbs) detach() error {
	input, err := json.Marshal(bytesOf(a.args))
	if err != nil {
		return err
	}
	output, reportEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	defer output.Close()
	// The command line is passed through standard input, because other users could read arguments
	// in /proc as long as the process runs.
	cmd := exec.Command("/proc/self/exe", holdVerb) //nolint:noctx // it outlives this process
	cmd.Args[0], cmd.Env, cmd.Stdout, cmd.Stderr = os.Args[0], a.vars, a.Stdout, a.Stderr
	cmd.ExtraFiles, cmd.SysProcAttr = []*os.File{reportEnd}, &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	reportEnd.Close()
	if err != nil {
		return fmt.Errorf("start the process that keeps its output: %w", err)
	}
	signals, release := notifySignals()
	defer release()
	go func() {
		// The process has its own session, so signals of the terminal do not reach it.
		for s := range signals {
			_ = cmd.Process.Signal(s) // an error means that it has exited, which Wait reports
		}
	}()
	_, _ = in.Write(input) // if it fails, the process prints why, or has exited
	_ = in.Close()
	if line, err := io.ReadAll(io.LimitReader(output, int64(len(startedLine)))); err == nil && string(line) == startedLine {
		return cmd.Process.Release()
	}
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exitCode(exit.ExitCode())
	}
	return fmt.Errorf("the process that keeps its output has ended: %w", err)
}

// runHolder reads the command line from standard input.
func (a runVerbs) runHolder() error {
	syscall.CloseOnExec(holderReport)
	a.holder = &holder{os.NewFile(holderReport, "holder")}
	var args [][]byte
	if err := json.NewDecoder(a.Stdin).Decode(&args); err != nil {
		return usagef("%s is started by crannog run --detach", holdVerb)
	}
	a.args = textsOf(args)
	return nil
}

// bytesOf encodes texts that need not be UTF-8 for JSON.
func bytesOf(texts []string) [][]byte {
	all := make([][]byte, 0, len(texts))
	for _, text := range texts {
		all = append(all, []byte(text))
	}
	return all
}

func textsOf(all [][]byte) []string {
	texts := make([]string, 0, len(all))
	for _, b := range all {
		texts = append(texts, string(b))
	}
	return texts
}

// waitForEnd reports that the command has started, and waits until it ends. It first closes this
// process's standard streams, so that their readers do not wait for the command.
func (h *holder) waitForEnd(cmd *crannog.Cmd) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for fd := range 3 {
		if err := syscall.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	_, err = io.WriteString(h.report, startedLine)
	if err := errors.Join(err, h.report.Close()); err != nil {
		return err
	}
	_ = cmd.Wait() // its exit code is in the audit log
	return nil
}
