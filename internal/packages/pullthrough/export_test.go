package pullthrough

import "github.com/crannog/crannog/internal/packages"

// SetProtocol replaces the protocol of an ecosystem.
func (c *Cache) SetProtocol(e packages.Ecosystem, p packages.Protocol) { c.protocols[e] = p }
