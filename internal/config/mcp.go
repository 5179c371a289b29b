package config

import (
	"errors"
	"fmt"
	"strings"
)

// MCPHostNames returns the names in mcp_hosts.
func (c Config) MCPHostNames() []string {
	return strings.FieldsFunc(c.MCP.Hosts, func(r rune) bool { return r == ',' || r == ' ' })
}

// checkMCP rejects settings that would let any web page reach /mcp, or that do not define who
// decides agents' requests.
func (c Config) checkMCP() error {
	var problems []error
	for _, name := range c.MCPHostNames() {
		if strings.ContainsAny(name, "*/:@?#") || strings.HasPrefix(name, ".") {
			problems = append(problems, fmt.Errorf("mcp_hosts: %q is not one host name, such as crannog.example.com", name))
		}
	}
	if c.MCP.Approver != "person" && c.MCP.Approver != "any" {
		problems = append(problems, fmt.Errorf("mcp_approver: %q is not person or any", c.MCP.Approver))
	}
	return errors.Join(problems...)
}
