package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Kinds of an entry.
const (
	kindCalibration = "calibration"
	kindProgram     = "program" // test program of a package, or step
	kindTest        = "test"
	kindSkipped     = "skipped"
)

// entry is one line of the log.
type entry struct {
	Kind      string
	Package   string  `json:",omitempty"`
	Name      string  `json:",omitempty"`
	Processor float64 `json:",omitempty"`
	Wall      float64 `json:",omitempty"`
}

// timesLog is the path of the file that collects entries. An empty path collects none.
type timesLog string

// add appends entries with one write, because programs of several packages add concurrently.
func (l timesLog) add(list ...entry) error {
	if l == "" {
		return nil
	}
	var lines []byte
	for _, e := range list {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	f, err := os.OpenFile(string(l), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	return errors.Join(err, f.Close())
}

// entries returns the collected entries.
func (l timesLog) entries() (list []entry, err error) {
	f, err := os.Open(string(l))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("CRANNOG_TIMES is not the file of a test run: %q", l)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("%s: %w", l, err)
		}
		list = append(list, e)
	}
	return list, lines.Err()
}
