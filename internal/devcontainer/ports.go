package devcontainer

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// PortAttributes say how one port is forwarded. The other attributes of the specification are about
// an editor's windows, and about ports that an editor finds by itself.
type PortAttributes struct {
	Label string `json:"label,omitempty"`
	// RequireLocalPort refuses another number on this machine.
	RequireLocalPort bool `json:"requireLocalPort,omitempty"`
}

// ports reads forwardPorts and appPort, and the attributes of these ports.
func (p *planner) ports() {
	p.forwarded("forwardPorts", p.config.ForwardPorts)
	if app := p.config.AppPort; len(app) > 0 && string(app) != "null" {
		var several []json.RawMessage
		if json.Unmarshal(app, &several) != nil {
			several = []json.RawMessage{app}
		}
		p.forwarded("appPort", several)
	}
	for _, port := range p.plan.Ports {
		a := p.config.OtherPorts
		for _, key := range slices.Sorted(maps.Keys(p.config.PortsAttributes)) {
			if covers(key, port) {
				a = p.config.PortsAttributes[key]
			}
		}
		if exact, ok := p.config.PortsAttributes[strconv.Itoa(port)]; ok {
			a = exact
		}
		if a != (PortAttributes{}) {
			if p.plan.PortAttributes == nil {
				p.plan.PortAttributes = map[int]PortAttributes{}
			}
			p.plan.PortAttributes[port] = a
		}
	}
}

// forwarded adds the ports of a list.
func (p *planner) forwarded(property string, list []json.RawMessage) {
	for _, raw := range list {
		text := string(raw)
		var quoted string
		if json.Unmarshal(raw, &quoted) == nil {
			text = quoted
		}
		number := strings.TrimPrefix(strings.TrimPrefix(text, "localhost:"), "127.0.0.1:")
		port, err := strconv.ParseUint(number, 10, 16)
		switch host, _, named := strings.Cut(number, ":"); {
		case err == nil && port > 0:
			if !slices.Contains(p.plan.Ports, int(port)) {
				p.plan.Ports = append(p.plan.Ports, int(port))
			}
		case named && property == "appPort":
			p.refuse(property, fmt.Sprintf("%.60q publishes a port under another number; forwardPorts takes the sandbox's number", text))
		case named:
			p.refuse(property, fmt.Sprintf("%.60q is a port of the host %.60q; only the sandbox's own ports are forwarded, because other hosts are reached through the egress gateway", text, host))
		default:
			p.refuse(property, fmt.Sprintf("%.60q is not a port of the sandbox", text))
		}
	}
}

// covers reports whether a key of portsAttributes is about a port: its number or a range. Keys that
// are patterns for command lines are about ports that an editor finds.
func covers(key string, port int) bool {
	key = strings.TrimPrefix(key, "localhost:")
	low, high, isRange := strings.Cut(key, "-")
	first, err := strconv.ParseUint(low, 10, 16)
	if err != nil {
		return false
	}
	last := first
	if isRange {
		if last, err = strconv.ParseUint(high, 10, 16); err != nil {
			return false
		}
	}
	return int(first) <= port && port <= int(last)
}
