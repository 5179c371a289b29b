package mcpserver

import "github.com/modelcontextprotocol/go-sdk/mcp"

// Extension adds to what servers of the protocol offer. It is how the layer
// below the tools is tried with abilities that no tool of ours uses. The zero
// value adds nothing.
type Extension struct {
	Options func(*mcp.ServerOptions) // changes what a server is made of
	Server  func(*mcp.Server)        // is given each server that was made
}

// server makes a server with all that is added.
func (e Extension) server(impl *mcp.Implementation, o *mcp.ServerOptions) *mcp.Server {
	if e.Options != nil {
		e.Options(o)
	}
	srv := mcp.NewServer(impl, o)
	if e.Server != nil {
		e.Server(srv)
	}
	return srv
}
