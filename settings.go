package crannog

import (
	"slices"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/server/standard"
)

// FromConfig gives an engine inside this process the settings that a server
// and the command line have: those of a file, or with "" of the file that they
// would find, with the environment over it. The policies of organisation and
// project, the default level, the bounds on lives, numbers, disk and record,
// and what seals secrets hold for every sandbox; the state directory is taken
// where the settings name one and State does not. The rest is about servers and
// command lines, and is not used. Other options come after it, and win.
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
		named := slices.ContainsFunc(c.Values(), func(v config.Value) bool { return v.Name == "state" && v.Origin != "default" })
		if named && o.State == "" {
			o.State = c.State
		}
		o.SecretsKey, o.SecretsExec, o.Record = c.SecretsKey, c.SecretsExec, standard.Record(c)
		o.Starts, o.DefaultEngine = standard.Starts(c), c.DefaultEngine
		if before != nil {
			return ceiling(o, before)
		}
		return nil
	}
}

// OrganisationPolicy is the text of a policy document that no sandbox of an
// engine inside this process may be wider than, whatever its creation asks for.
func OrganisationPolicy(text string) LocalOption {
	return func(o *standard.Options) error {
		d, err := policy.Parse([]byte(text))
		if err != nil {
			return err
		}
		return ceiling(o, &d)
	}
}

// ceiling sets the organisation's policy. A second one is refused: whichever
// gave way would be a bound that somebody believes in.
func ceiling(o *standard.Options, d *policy.Document) error {
	if o.Settings.Organisation != nil {
		return fault.New(fault.Invalid, "organisation_policy_twice", "the organisation's policy is given twice").
			WithHint("name it with OrganisationPolicy, or in the settings file")
	}
	o.Settings.Organisation = d
	_, _, err := sandbox.Access{}.Compile(o.Settings)
	return err
}
