package e2b

import (
	"net/http"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// generation holds the differences between the two create calls.
type generation struct {
	defaultTimeout int64 // seconds
}

var (
	createV1 = generation{defaultTimeout: 15}
	createV2 = generation{defaultTimeout: 300}
)

// newSandbox is the body of create. Pointers distinguish "absent" from zero. The field secure is
// parsed so that a wrong type is refused. It has no effect, because every sandbox requires its
// token.
type newSandbox struct {
	accessFields
	TemplateID string            `json:"templateID"`
	Timeout    *int64            `json:"timeout"`
	Metadata   map[string]string `json:"metadata"`
	EnvVars    map[string]string `json:"envVars"`
	Secure     *bool             `json:"secure"`
	// Containers is an extension of E2B's API, with the meaning of /v1.
	Containers          bool           `json:"containers"`
	AllowInternetAccess *bool          `json:"allow_internet_access"`
	Limits              *limitsBody    `json:"limits"`
	Network             *newNetwork    `json:"network"`
	AutoPause           bool           `json:"autoPause"`
	AutoPauseMemory     *bool          `json:"autoPauseMemory"`
	AutoResume          *newAutoResume `json:"autoResume"`
	VolumeMounts        []newVolume    `json:"volumeMounts"`
	MCP                 map[string]any `json:"mcp"`
	IAM                 *newIAM        `json:"iam"`
}

type newAutoResume struct {
	Enabled bool `json:"enabled"`
}

// newVolume is a volume to mount, or a directory that the server's settings share.
type newVolume struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

type newIAM struct {
	Tokens map[string]any `json:"tokens"`
}

type newNetwork struct {
	egress
	AllowPublicTraffic *bool  `json:"allowPublicTraffic"`
	MaskRequestHost    string `json:"maskRequestHost"`
	HTTPSPorts         []int  `json:"httpsPorts"`
}

func (a *api) create(g generation) call {
	return func(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
		var body newSandbox
		if err := decode(w, r, &body, false); err != nil {
			return err
		}
		req, err := body.request(g)
		if err != nil {
			return err
		}
		made, err := a.Lifetimes.Create(r.Context(), caller, req)
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusCreated, a.sandboxBody(made))
		return nil
	}
}

// request converts the body for the sandbox service.
func (b newSandbox) request(g generation) (sandbox.CreateRequest, error) {
	if b.TemplateID == "" {
		return sandbox.CreateRequest{}, fault.New(fault.Invalid, "template_missing", "templateID is required")
	}
	ref, err := sandbox.ParseReference(b.TemplateID)
	if err != nil {
		return sandbox.CreateRequest{}, err
	}
	timeout, err := createTimeout(b.Timeout, g)
	if err != nil {
		return sandbox.CreateRequest{}, err
	}
	if err := b.checkSupported(); err != nil {
		return sandbox.CreateRequest{}, err
	}
	limits, err := b.Limits.limits()
	if err != nil {
		return sandbox.CreateRequest{}, err
	}
	req := sandbox.CreateRequest{
		Template: ref.String(),
		Timeout:  timeout,
		Metadata: b.Metadata,
		Env:      b.EnvVars,
		Limits:   limits,
		OnEnd:    b.onEnd(),

		Containers: b.Containers,
	}
	if req.Volumes, err = volumesOf(b.VolumeMounts); err != nil {
		return sandbox.CreateRequest{}, err
	}
	if n := b.Network; n != nil {
		req.PrivatePorts = n.AllowPublicTraffic != nil && !*n.AllowPublicTraffic
		req.MaskRequestHost = n.MaskRequestHost
	}
	if req.Access, err = b.access(); err != nil {
		return sandbox.CreateRequest{}, err
	}
	return req, checkMask(req.MaskRequestHost)
}

// onEnd returns what happens at the end of the sandbox's lifetime.
func (b newSandbox) onEnd() sandbox.OnEnd {
	return sandbox.OnEnd{
		Pause:     b.AutoPause,
		FilesOnly: b.AutoPauseMemory != nil && !*b.AutoPauseMemory,
		Wake:      b.AutoResume != nil && b.AutoResume.Enabled,
	}
}

// checkSupported refuses unsupported fields. If they were ignored, the caller would have less
// isolation, or less state, than expected.
func (b newSandbox) checkSupported() error {
	if err := b.rejectMisplaced(); err != nil {
		return err
	}
	e := b.onEnd()
	switch {
	case e.FilesOnly && !e.Pause:
		return fault.New(fault.Invalid, "auto_pause_invalid", "autoPauseMemory can only be false together with autoPause")
	case e.FilesOnly && e.Wake:
		// Traffic must not boot a sandbox without its memory: running programs would be lost, which
		// only its owner may decide.
		return fault.New(fault.Invalid, "auto_pause_invalid", "autoResume needs autoPauseMemory")
	case b.MCP != nil:
		return notSupported("the MCP gateway")
	case b.IAM != nil && len(b.IAM.Tokens) > 0:
		return notSupported("identity tokens")
	}
	if b.Network != nil && len(b.Network.HTTPSPorts) > 0 {
		return notSupported("HTTPS to ports inside")
	}
	return nil
}

// checkMask checks a Host header that a caller sets. With control characters, it could add further
// headers to requests for the program inside.
func checkMask(host string) error {
	for _, c := range []byte(host) {
		if c <= ' ' || c >= 0x7f {
			return fault.New(fault.Invalid, "mask_request_host_invalid", "maskRequestHost must be printable ASCII without spaces")
		}
	}
	if len(host) > 255 {
		return fault.New(fault.Invalid, "mask_request_host_invalid", "maskRequestHost is longer than 255 characters")
	}
	return nil
}
