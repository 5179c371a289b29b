// Package drill owns attacks that a user makes on the sandboxes of their own host, to see that the
// defences hold: an agent obeys a hostile instruction completely, and must not reach its goal.
package drill

import (
	"errors"

	"github.com/crannog/crannog/api"
)

// Errors that callers test for.
var (
	ErrOptions  = errors.New("the options of the drill are invalid")
	ErrScenario = errors.New("a scenario is invalid")
)

// Goal is what an attack must achieve to count as successful. Each run of an attack has a random
// token, so that no earlier run can be mistaken for it.
type Goal string

const (
	// Output means that the attack prints the token. Its script learns the token only from what it
	// must not read, or prints it only after it did what it must not do.
	Output Goal = "output"
	// Received means that a server outside the sandbox receives the token.
	Received Goal = "received"
	// Changed means that the token is in a file of the workspace on the host.
	Changed Goal = "changed"
)

// Scenario is one attack, as in its file.
type Scenario struct {
	Name  string `yaml:"name" json:"name"`
	Kind  string `yaml:"kind" json:"kind"`
	Title string `yaml:"title" json:"title"`
	// Defence is what must stop the attack.
	Defence string `yaml:"defence" json:"defence"`
	Goal    Goal   `yaml:"goal" json:"goal"`
	// Needs are programs of the host that the attack uses.
	Needs []string `yaml:"needs,omitempty" json:"needs,omitempty"`
	// Files are the files of the workspace. {{token}} and {{host}} are replaced in them.
	Files map[string]string `yaml:"files,omitempty" json:"files,omitempty"`
	// Attack is the script of the agent, for sh. {{host}} is a directory of the host with the file
	// secret, which contains the token, and {{state}} is the state directory of the drill's server.
	Attack string `yaml:"attack" json:"-"`
	// Works is a script that must succeed in the sandbox before the attack. It uses the same tools
	// harmlessly. Needed if the control is on the host, which does not show that the attack could
	// work in a sandbox.
	Works string `yaml:"works,omitempty" json:"-"`
	// Apply applies the sandbox's changes to the workspace after the attack.
	Apply    bool     `yaml:"apply,omitempty" json:"-"`
	Sandbox  Settings `yaml:"sandbox,omitempty" json:"-"`
	Control  Control  `yaml:"control" json:"-"`
	FromUser bool     `yaml:"-" json:"from_user,omitempty"`
}

// Settings are the settings of a sandbox.
type Settings struct {
	// Level is the level of the policy. If absent, it is the strictest of light and standard that
	// accepts the engine.
	Level string `yaml:"level,omitempty"`
	// Policy is a policy document. Without one, and without Net, a sandbox has no network.
	Policy string `yaml:"policy,omitempty"`
	Net    string `yaml:"net,omitempty"`
	// Seconds is the time limit of the attack; 30 if absent.
	Seconds float64 `yaml:"seconds,omitempty"`
	Limits  Limits  `yaml:"limits,omitempty"`
}

// Limits are limits of a sandbox; 0 is the engine's default.
type Limits struct {
	MemoryMiB int64 `yaml:"memory_mib,omitempty"`
	DiskMiB   int64 `yaml:"disk_mib,omitempty"`
	Inodes    int64 `yaml:"inodes,omitempty"`
	Processes int64 `yaml:"processes,omitempty"`
	ShmMiB    int64 `yaml:"shm_mib,omitempty"`
}

func (l Limits) api() api.Limits {
	return api.Limits{
		MemoryBytes: l.MemoryMiB << 20, DiskBytes: l.DiskMiB << 20, DiskInodes: l.Inodes, PIDs: l.Processes, ShmBytes: l.ShmMiB << 20,
	}
}

// Control is the same attack where the defence is absent. It must succeed; otherwise the failure of
// the attack in the sandbox proves nothing.
type Control struct {
	// On is host, for an agent that runs on the host without a sandbox, or sandbox, for a sandbox
	// with the settings below.
	On string `yaml:"on"`
	// Protected applies protected files too.
	Protected bool `yaml:"protected,omitempty"`
	Settings  `yaml:",inline"`
}

// Values of Control.On.
const (
	OnHost    = "host"
	OnSandbox = "sandbox"
)

// Verdict is the result of a scenario on an engine.
type Verdict string

const (
	// Held means that the attack failed, and succeeded in the control.
	Held Verdict = "held"
	// Broken means that the attack succeeded.
	Broken Verdict = "broken"
	// Unproven means that the attack failed in the control too, that its tools do not work in the
	// sandbox, or that a sandbox could not be created, so that the drill proves nothing.
	Unproven Verdict = "unproven"
	// NotRun means that the scenario cannot run on this engine or host.
	NotRun Verdict = "not run"
)

// Result is the result of a scenario on an engine.
type Result struct {
	Scenario
	Engine  string  `json:"engine"`
	Verdict Verdict `json:"verdict"`
	// Stopped names the rules of the policy that denied requests of the attack.
	Stopped []string `json:"stopped,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

// Report is the result of a drill.
type Report struct {
	Results  []Result `json:"results"`
	Held     int      `json:"held"`
	Broken   int      `json:"broken"`
	Unproven int      `json:"unproven"`
	NotRun   int      `json:"not_run"`
}

// Passed reports whether each scenario that could run held, and at least one did.
func (r Report) Passed() bool { return r.Held > 0 && r.Broken == 0 && r.Unproven == 0 }

func (r *Report) add(result Result) {
	r.Results = append(r.Results, result)
	switch result.Verdict {
	case Held:
		r.Held++
	case Broken:
		r.Broken++
	case NotRun:
		r.NotRun++
	default:
		r.Unproven++
	}
}
