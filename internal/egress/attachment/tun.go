package attachment

import (
	"os"

	"github.com/crannog/crannog/internal/egress/tun"
)

// NewTap makes a TUN device with the sandbox's address and a default route, in the
// network namespace of the calling thread, and returns the gateway's end.
func NewTap(name string, mtu int) (*os.File, error) { return tun.New(name, mtu) }

// NewEthernetTap is NewTap for a TAP device, whose gateway end is of the kind Ethernet:
// for a peer that needs an Ethernet interface, such as a bridge or a microVM's relay.
func NewEthernetTap(name string, mtu int) (*os.File, error) { return tun.NewEthernet(name, mtu) }
