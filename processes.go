package crannog

import "context"

// Process is a command that runs in a sandbox, whoever started it.
type Process struct {
	PID  int      `json:"pid"`
	Tag  string   `json:"tag,omitempty"`
	Args []string `json:"args"`
	Dir  string   `json:"dir,omitempty"`
}

// Processes lists the commands that were started and run. Their children are
// not in it.
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
