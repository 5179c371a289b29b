// Package programtest provides the crannog binary that tests run. It copies a binary that was built
// before, or builds one.
package programtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// Variable is the environment variable that names a program that was built before. The Makefile
// sets it, so that one build serves all packages.
const Variable = "CRANNOG_TEST_PROGRAM"

// Place puts the program into a directory and returns its path there. It copies the file that
// Variable names, or builds the program if the variable is not set. The copy is needed because some
// tests run the program as another user, who may not enter the repository.
func Place(dir string) (string, error) {
	program := filepath.Join(dir, "crannog")
	if built := os.Getenv(Variable); built != "" {
		return program, copyTo(program, built)
	}
	build := exec.Command("go", "build", "-o", program, "github.com/crannog/crannog/cmd/crannog") //nolint:noctx // TestMain has no context
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return program, nil
}

func copyTo(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("%s: %w", Variable, err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
