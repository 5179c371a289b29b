package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/crannog/crannog/internal/fault"
)

// Choice is what a request and its policy require of the engine.
type Choice struct {
	Name  string   // the requested engine, or ""
	Least Boundary // the weakest boundary that the policy accepts
	Asked Boundary // the weakest boundary that the request accepts
	// AnyBoundary accepts an engine without a boundary in any case: for tests only.
	AnyBoundary bool
	Images      []ImageKind // the kinds of image from which the sandbox can start; none stands for all
	Limits      []Limit     // the limits in the request, which the engine must enforce
	Needs       []Capability
	Volumes     bool // whether the sandbox has volumes
	Containers  bool // whether container engines run in the sandbox
}

// containersHint is the help for an engine that cannot run containers inside a sandbox.
const containersHint = "leave containers out, or choose an engine that gives each sandbox a kernel in user space"

// volumesHint is the help for an engine that cannot attach volumes.
const volumesHint = "leave the volumes out, run the server as root, or choose an engine that can attach them"

// Enough reports whether a boundary meets the minimums of the policy and the request.
func (c Choice) Enough(b Boundary) bool {
	return b.AtLeast(c.Least) && b.AtLeast(c.Asked) || b == NoBoundary && c.AnyBoundary
}

// mismatch is the reason why an engine does not suit a choice. Its help names a remedy other than
// choosing another engine.
type mismatch struct{ code, text, help string }

// mismatch returns the first reason why an engine does not suit, or nil if it suits.
func (c Choice) mismatch(e Info) *mismatch {
	if !c.Enough(e.Boundary) && e.Boundary.AtLeast(c.Least) {
		return &mismatch{
			CodeTooWeak, fmt.Sprintf("the request wants a boundary of at least %s, and the engine %s has %s", c.Asked, e.Name, e.Boundary),
			"ask for less",
		}
	}
	if !c.Enough(e.Boundary) {
		return &mismatch{
			CodeTooWeak, fmt.Sprintf("the policy wants a boundary of at least %s, and the engine %s has %s", c.Least, e.Name, e.Boundary),
			"choose another level, or a policy with a lower isolation.at_least",
		}
	}
	if len(c.Images) > 0 && !slices.ContainsFunc(c.Images, func(k ImageKind) bool { return slices.Contains(e.Images, k) }) {
		help := "choose another template or image; crannog engines lists the kinds"
		if slices.Contains(c.Images, ImageHostView) && slices.Contains(e.Images, ImageOCI) {
			help = "name an image, such as --image debian:12"
		}
		return &mismatch{CodeImage, fmt.Sprintf("the engine %s cannot start a sandbox from an image of the kind %q", e.Name, c.Images[0]), help}
	}
	if c.Volumes && !e.Volumes {
		return &mismatch{CodeVolumes, fmt.Sprintf("the engine %s cannot attach volumes here", e.Name), volumesHint}
	}
	if c.Containers && !e.Containers {
		return &mismatch{CodeContainers, fmt.Sprintf("the engine %s cannot run containers inside a sandbox", e.Name), containersHint}
	}
	for _, l := range c.Limits {
		if !slices.Contains(e.Enforces, l) {
			return &mismatch{
				CodeLimit, fmt.Sprintf("the engine %s does not enforce a limit of %s on this host", e.Name, l),
				"leave this limit out; crannog doctor lists what is enforced here",
			}
		}
	}
	for _, n := range c.Needs {
		if !slices.Contains(e.Capabilities, n) {
			return &mismatch{
				CodeCapability, fmt.Sprintf("the engine %s has no %s", e.Name, n),
				"leave out what needs it; crannog engines lists the capabilities",
			}
		}
	}
	return nil
}

// Choose returns the engine of a new sandbox: the requested one, or else the default if it suits,
// or else the suitable engine with the weakest boundary that is not marked OnRequest. A requested
// engine that does not suit is refused and never exchanged for another.
func (r *Registry) Choose(c Choice) (Engine, error) {
	if c.Name != "" {
		e, err := r.Named(c.Name)
		if err == nil {
			err = r.Check(c, e)
		}
		return e, err
	}
	if c.mismatch(r.fallback.Info()) == nil {
		return r.fallback, nil
	}
	for _, e := range r.suited(c) {
		if !e.Info().OnRequest {
			return e, nil
		}
	}
	return nil, r.refuseAll(c)
}

// WhyNotDefault returns why Choose returned e and not the default engine. It returns "" if e is the
// default engine or was requested by name.
func (r *Registry) WhyNotDefault(c Choice, e Engine) string {
	m := c.mismatch(r.fallback.Info())
	if c.Name != "" || m == nil {
		return ""
	}
	return fmt.Sprintf("runs on the engine %s, because %s", e.Info().Name, m.text)
}

// Check refuses an engine that does not suit the choice. The hint names an engine that does.
func (r *Registry) Check(c Choice, e Engine) error {
	m := c.mismatch(e.Info())
	if m == nil {
		return nil
	}
	hint := "no engine here suits: " + m.help
	if suited := r.suited(c); len(suited) > 0 {
		hint = "use --engine " + suited[0].Info().Name + ", or " + m.help
	}
	return fault.New(fault.Unsupported, m.code, m.text).WithHint(hint)
}

// refuseAll returns a fault with the reason why each engine does not suit. Its code and hint are
// those of the default engine.
func (r *Registry) refuseAll(c Choice) error {
	first := c.mismatch(r.fallback.Info())
	texts := []string{first.text}
	for _, e := range r.engines {
		info := e.Info()
		m := c.mismatch(info)
		if m == nil {
			return fault.New(fault.Unsupported, first.code, first.text).WithHint("use --engine " + info.Name + ", or " + first.help)
		}
		if m.text != first.text {
			texts = append(texts, m.text)
		}
	}
	return fault.New(fault.Unsupported, first.code, strings.Join(texts, "; ")).WithHint("no engine here suits: " + first.help)
}

// suited returns the suitable engines, the weakest boundary first: a stronger boundary costs more
// time and memory than the policy requires.
func (r *Registry) suited(c Choice) []Engine {
	list := slices.DeleteFunc(r.All(), func(e Engine) bool { return c.mismatch(e.Info()) != nil })
	slices.SortStableFunc(list, func(a, b Engine) int {
		return strength[a.Info().Boundary] - strength[b.Info().Boundary]
	})
	return list
}
