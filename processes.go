package crannog

import (
	"context"
	"net/http"

	"github.com/crannog/crannog/api"
)

// Process is a command that runs in a sandbox, whichever caller started it.
type Process struct {
	PID  int      `json:"pid"`
	Tag  string   `json:"tag,omitempty"`
	Args []string `json:"args"`
	Dir  string   `json:"dir,omitempty"`
}

// AllProcesses lists all processes of the sandbox, each with the command that it
// descends from. The sandbox itself reports them.
func (s *Sandbox) AllProcesses(ctx context.Context) (api.ProcessList, error) {
	var out api.ProcessList
	err := s.client.call(ctx, http.MethodGet, s.path("/processes"), nil, &out)
	return out, err
}

// Processes lists the running commands, without their children.
func (s *Sandbox) Processes(ctx context.Context) ([]Process, error) {
	infos, err := s.processes().List(ctx)
	if err != nil {
		return nil, fromFault(err)
	}
	list := make([]Process, 0, len(infos))
	for _, p := range infos {
		list = append(list, Process{PID: int(p.PID), Tag: p.Tag, Args: append([]string{p.Cmd}, p.Args...), Dir: p.Dir})
	}
	return list, nil
}
