package cli

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/crannog/crannog/internal/config"
)

// amounts are the flags that limit a sandbox, with an example of each. A size needs a unit: a plain
// number would mean bytes, which is rarely intended.
var amounts = []struct {
	flag, example string
	size          bool
	value         func(config.Config) int64
}{
	{"memory", "512m", true, func(c config.Config) int64 { return c.Sandbox.MemoryBytes }},
	{"disk", "1g", true, func(c config.Config) int64 { return c.Sandbox.DiskBytes }},
	{"shm", "64m", true, func(c config.Config) int64 { return c.Sandbox.ShmBytes }},
	{"cpus", "1.5", false, func(c config.Config) int64 { return c.Sandbox.MilliCPU }},
	{"pids", "100", false, func(c config.Config) int64 { return c.Sandbox.PIDs }},
	{"inodes", "10000", false, func(c config.Config) int64 { return c.Sandbox.DiskInodes }},
}

// minPlainSize is the smallest size, in bytes, that is accepted without a unit.
const minPlainSize = 1 << 20

// checkAmounts refuses zero, because as a setting it means the default but could be taken for
// unlimited. It also refuses a size without a unit.
func checkAmounts(cmd *cobra.Command, c config.Config) error {
	for _, a := range amounts {
		f := cmd.Flags().Lookup(a.flag)
		if f == nil || !f.Changed {
			continue
		}
		value, n := f.Value.String(), a.value(c)
		if n == 0 {
			return usagef("--%s: %s is zero, which does not mean unlimited", a.flag, inert(value)).
				hint("leave --" + a.flag + " out for the default, or name an amount, such as --" + a.flag + " " + a.example)
		}
		if _, err := strconv.ParseUint(value, 10, 63); a.size && err == nil && n < minPlainSize {
			return usagef("--%s: %s is %s bytes, which is too little", a.flag, value, value).
				hint("add a unit: --" + a.flag + " " + value + "m is " + value + " MiB")
		}
	}
	return nil
}
