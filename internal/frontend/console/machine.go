package console

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/frontend/console/session"
)

// checkup caches the results of doctor briefly. The checks start processes, so reloading a page
// must not run them each time.
type checkup struct {
	mu    sync.Mutex
	at    time.Time
	found any
}

const (
	checkupAge = 20 * time.Second
	// checkupTimeout bounds the checks.
	checkupTimeout = time.Minute
)

func (c *Console) doctor(w http.ResponseWriter, r *http.Request, _ session.Session) {
	c.checkup.mu.Lock()
	defer c.checkup.mu.Unlock()
	if c.checkup.found == nil || time.Since(c.checkup.at) > checkupAge {
		// Other requests share the result, so it must not depend on the first client's connection.
		// If that client left, a canceled check would report a failing engine.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), checkupTimeout)
		defer cancel()
		c.checkup.found, c.checkup.at = c.o.Machine.Doctor(ctx), time.Now()
	}
	writeJSON(w, http.StatusOK, struct {
		At       time.Time `json:"at"`
		Findings any       `json:"findings"`
	}{c.checkup.at.UTC(), c.checkup.found})
}

func (c *Console) settings(w http.ResponseWriter, _ *http.Request, _ session.Session) {
	writeJSON(w, http.StatusOK, struct {
		Settings []config.Value `json:"settings"`
	}{c.o.Machine.Settings()})
}

// Template is a template as pages show it.
type Template struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

func (c *Console) templates(w http.ResponseWriter, _ *http.Request, _ session.Session) {
	writeJSON(w, http.StatusOK, struct {
		Templates []Template `json:"templates"`
	}{c.o.Machine.Templates()})
}
