package mcpserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/crannog/crannog/internal/fault"
)

type exposePortIn struct {
	target
	Port int `json:"port" jsonschema:"The port on which a program in the sandbox listens."`
}

type exposePortOut struct {
	URL     string `json:"url"`
	Port    int    `json:"port"`
	Answers bool   `json:"answers" jsonschema:"Something answered HTTP there just now."`
	Private bool   `json:"private" jsonschema:"Requests need the sandbox's traffic token."`
	Sandbox string `json:"sandbox"`
}

// probeTime is how long a program may take to answer the probe.
const probeTime = 3 * time.Second

func (w *view) addPort() {
	add(w, tool{
		name: "expose_port", title: "Show a port to the user", repeats: true, reaches: true,
		text:  "Return the address under which the user's browser reaches an HTTP server that runs in the sandbox. Start the server first, in the background, on any address of the sandbox.",
		shape: func(p map[string]*jsonschema.Schema) { inRange(p["port"], 1, 65535) },
	}, w.exposePort)
}

func (w *view) exposePort(ctx context.Context, c *call, in exposePortIn) (exposePortOut, error) {
	b, err := c.sandbox(ctx, in.Sandbox)
	if err != nil {
		return exposePortOut{}, err
	}
	version, err := w.tenant.o.Client.Version(ctx)
	if err != nil {
		return exposePortOut{}, err
	}
	if version.Domain == "" {
		return exposePortOut{}, fault.New(fault.Unsupported, "no_preview", "this engine has no server that could show a port").
			WithHint("the user can start crannog serve, and then these tools again")
	}
	out := exposePortOut{
		URL: previewURL(version.Domain, in.Port, b.sb.ID()), Port: in.Port, Answers: b.answers(ctx, in.Port),
		Private: b.sb.Info().TrafficToken != "", Sandbox: b.sb.ID(),
	}
	c.printf("%s\n", out.URL)
	if !out.Answers {
		c.printf("[nothing answers HTTP on port %d yet]\n", in.Port)
	}
	if out.Private {
		c.printf("[it is private: requests need the header E2b-Traffic-Access-Token]\n")
	}
	c.more = append(c.more, &mcp.ResourceLink{URI: out.URL, Name: fmt.Sprintf("port %d", in.Port), Title: "The program on port " + fmt.Sprint(in.Port)})
	return out, nil
}

// previewURL returns the address of a port. Addresses on this machine use no TLS.
func previewURL(domain string, port int, id string) string {
	host, _, err := net.SplitHostPort(domain)
	if err != nil {
		host = domain
	}
	scheme := "https"
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || net.ParseIP(host) != nil {
		scheme = "http"
	}
	return fmt.Sprintf("%s://%d-%s.%s/", scheme, port, id, domain)
}

// answers reports whether a program answers HTTP on the port.
func (b *agentSandbox) answers(ctx context.Context, port int) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, fmt.Sprintf("http://localhost:%d/", port), nil)
	if err != nil {
		return false
	}
	resp, err := b.sb.HTTPClient().Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode != http.StatusBadGateway && resp.StatusCode != http.StatusNotFound
}
