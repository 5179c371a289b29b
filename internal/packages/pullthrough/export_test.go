package pullthrough

import "github.com/crannog/crannog/internal/packages"

// SetMaxPlain sets the size from which on the free space limits layers.
func (c *Cache) SetMaxPlain(n int64) { c.maxPlain = n }

// SetProtocol replaces the protocol of an ecosystem.
func (c *Cache) SetProtocol(e packages.Ecosystem, p packages.Protocol) { c.protocols[e] = p }
