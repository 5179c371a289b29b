package server

import (
	"path/filepath"

	"github.com/crannog/crannog/internal/audit/recording"
	"github.com/crannog/crannog/internal/frontend/ingress/observe"
)

// openRecordings opens the session recordings.
func (d *Server) openRecordings() {
	o := d.options
	d.recordings = recording.New(recording.Options{Dir: filepath.Join(o.StateDir, "recordings"), Budget: o.Audit.Recordings, Log: o.Log})
}

// openTap creates the observer that records all commands that callers run.
func (d *Server) openTap() (err error) {
	d.tap, err = observe.New(observe.Deps{Audit: d.Audit, Recordings: d.recordings, Log: d.options.Log, Survey: d.Service.Survey, Times: d.figures.Commands})
	if err == nil && d.lock != nil {
		err = d.recordings.Sweep()
	}
	return err
}
