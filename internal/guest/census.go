package guest

import (
	"encoding/json"
	"errors"
	"net/http"
	"syscall"

	"github.com/crannog/crannog/internal/guest/census"
)

// census answers with the list of processes and listening ports.
func (g *Guest) census(w http.ResponseWriter) {
	c, err := census.Take("/proc")
	if err != nil {
		g.log.Warn("processes were not listed", "err", err)
		fail(w, http.StatusConflict, "the list of processes cannot be read")
		return
	}
	requests := g.process.Requested()
	for i := range c.Processes {
		p := &c.Processes[i]
		p.User = g.opts.Users.UserName(p.UID)
		if r, ok := requests[p.PID]; ok {
			p.Requested, p.Terminal, p.Cols, p.Rows, p.Tag = true, r.Terminal, r.Cols, r.Rows, r.Tag
		}
	}
	g.process.NameOrigins(&c)
	writeJSON(w, http.StatusOK, c)
}

// signal signals a process. If the process is a command that a caller started, its whole process
// group gets the signal.
func (g *Guest) signal(w http.ResponseWriter, r *http.Request) {
	var s census.Signal
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxUpdate))
	body.DisallowUnknownFields()
	// Process 1 is the guest. Killing it would end the sandbox, for which there is another request.
	// Zero and negative numbers would address process groups, or all processes.
	if err := body.Decode(&s); err != nil || s.PID <= 1 || s.Signal < 1 || s.Signal > 31 {
		fail(w, http.StatusBadRequest, "malformed signal")
		return
	}
	err := g.process.Signal(s.PID, syscall.Signal(s.Signal))
	switch {
	case errors.Is(err, syscall.ESRCH):
		notFound(w, r)
	case err != nil:
		fail(w, http.StatusConflict, err.Error())
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}
