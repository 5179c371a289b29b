package mcpserver

import "github.com/modelcontextprotocol/go-sdk/mcp"

// Extension changes the MCP servers in tests, for features of the library that none of the tools
// uses. The zero value changes nothing.
type Extension struct {
	Options func(*mcp.ServerOptions) // changes the options of a server
	Server  func(*mcp.Server)        // is called with each created server
}

// server creates a server with the extension.
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
