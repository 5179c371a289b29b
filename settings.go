package crannog

import (
	"slices"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server/standard"
)

// FromConfig applies the settings of a server and the command line to an engine inside this
// process: from a file, or with "" from the default file. Environment variables take precedence
// over the file. It uses the policies of organisation and project, the default level, the limits of
// sandboxes, disk and audit log, and the key of secrets. It uses the state directory of the
// settings if State is not given. It ignores settings about servers and command lines. Options
// after it take precedence.
func FromConfig(file string) LocalOption {
	return func(o *standard.Options) error {
		c, err := config.Load(config.Host(), file)
		if err == nil {
			err = c.Validate()
		}
		if err != nil {
			return fault.New(fault.Invalid, "invalid_settings", err.Error())
		}
		before := o.Settings.Organisation
		if o.Settings, err = standard.Settings(c); err != nil {
			return err
		}
		stateIsSet := slices.ContainsFunc(c.Values(), func(v config.Value) bool { return v.Name == "state" && v.Origin != "default" })
		if stateIsSet && o.State == "" {
			o.State = c.State
		}
		o.Packages = standard.PackagesOf(c)
		o.SecretsKey, o.SecretsExec, o.Audit = c.Secrets.Key, c.Secrets.Exec, standard.Audit(c)
		o.Starts, o.DefaultEngine, o.Docker, o.MicroVM, o.NoDevice = standard.Starts(c), c.Engines.Default, standard.DockerOf(c), standard.MicroVMOf(c), standard.NoDevice(c)
		if before != nil {
			return setOrganisationPolicy(o, before)
		}
		return nil
	}
}

// OrganisationPolicy is the text of a policy document that limits every sandbox of an engine inside
// this process, whatever its creation requests.
func OrganisationPolicy(text string) LocalOption {
	return func(o *standard.Options) error {
		d, err := policy.Parse([]byte(text))
		if err != nil {
			return err
		}
		return setOrganisationPolicy(o, &d)
	}
}

// setOrganisationPolicy sets the organisation's policy. A second one is refused, because only one
// of the two could be in force.
func setOrganisationPolicy(o *standard.Options, d *policy.Document) error {
	if o.Settings.Organisation != nil {
		return fault.New(fault.Invalid, "organisation_policy_twice", "the organisation's policy is given twice").
			WithHint("name it with OrganisationPolicy, or in the settings file")
	}
	o.Settings.Organisation = d
	// Compile checks the policy. Its result is not needed.
	_, _, err := sandbox.Access{}.Compile(o.Settings)
	return err
}
