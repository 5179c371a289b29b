package server

import (
	"path/filepath"

	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
)

// openRecordings finds what commands have printed.
func (d *Server) openRecordings() {
	o := d.options
	d.tapes = recording.New(recording.Options{Dir: filepath.Join(o.StateDir, "recordings"), Budget: o.Record.Recordings, Log: o.Log})
}

// openTap makes what reads along with all that callers have run.
func (d *Server) openTap() (err error) {
	d.tap, err = observe.New(observe.Deps{Record: d.Record, Shelf: d.tapes, Log: d.options.Log, Survey: d.Service.Survey})
	if err == nil && d.lock != nil {
		err = d.tapes.Sweep()
	}
	return err
}
