package machine

import (
	"os"

	"github.com/crannog/crannog/internal/egress/tun"
	"github.com/crannog/crannog/internal/engine/jail/setup"
)

// network assigns the sandbox's address to the machine's network device.
func network() error {
	if _, err := await("the network device", func() string {
		if _, err := os.Stat("/sys/class/net/" + setup.Interface); err != nil {
			return ""
		}
		return setup.Interface
	}); err != nil {
		return err
	}
	return tun.Configure(setup.Interface)
}
