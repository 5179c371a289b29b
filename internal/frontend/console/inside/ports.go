package inside

import (
	"cmp"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/crannog/crannog/internal/guest/guestboot"
)

// ownPorts are the ports of Crannog's own programs inside.
var ownPorts = append(guestboot.Ports(), 53)

// Port is a port on which a program listens.
type Port struct {
	Port int `json:"port"`
	// PreviewURL is its address, with an origin different from the console's.
	PreviewURL string `json:"preview_url"`
	// Private means that requests need the sandbox's traffic token in the header
	// E2b-Traffic-Access-Token, so a browser cannot open the port as a page.
	Private bool `json:"private,omitempty"`
}

func (x *Inside) ports(w http.ResponseWriter, r *http.Request, v visit) error {
	c, err := x.deps.Census.Census(r.Context(), v.caller.Principal(), v.sb.ID)
	if err != nil {
		return err
	}
	out := struct {
		Ports []Port `json:"ports"`
	}{[]Port{}}
	for _, port := range c.Ports {
		if port < 1 || port > 65535 || slices.Contains(ownPorts, port) {
			continue
		}
		out.Ports = append(out.Ports, Port{port, x.preview(r, v.sb.ID, port), v.sb.TrafficToken != ""})
	}
	return writeJSON(w, http.StatusOK, out)
}

// preview returns the address of a port. It has its own origin, so that a program's pages cannot
// access the console.
func (x *Inside) preview(r *http.Request, id string, port int) string {
	scheme := "http"
	// A TLS proxy sets this header. A false value could mislead only the sender's own page, whose
	// preview would stay empty.
	if r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		scheme = "https"
	}
	host := strconv.Itoa(port) + "-" + id + "." + cmp.Or(x.deps.Domain, "localhost")
	if _, at, err := net.SplitHostPort(r.Host); err == nil {
		if _, _, named := net.SplitHostPort(host); named != nil {
			host = net.JoinHostPort(host, at)
		}
	}
	return scheme + "://" + host + "/"
}
