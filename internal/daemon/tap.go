package daemon

import (
	"path/filepath"

	"github.com/crannog/crannog/internal/recording"
	"github.com/crannog/crannog/internal/tap"
)

// openRecordings finds what commands have printed.
func (d *Daemon) openRecordings() {
	o := d.options
	d.tapes = recording.New(recording.Options{Dir: filepath.Join(o.StateDir, "recordings"), Budget: o.Record.Recordings, Log: o.Log})
}

// openTap makes what reads along with all that callers have run.
func (d *Daemon) openTap() (err error) {
	d.tap, err = tap.New(tap.Deps{Record: d.Record, Shelf: d.tapes, Log: d.options.Log, Survey: d.Service.Survey})
	if err == nil && d.lock != nil {
		err = d.tapes.Sweep()
	}
	return err
}
