package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/crannog/crannog/internal/config"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/packages/advisory"
	"github.com/crannog/crannog/internal/packages/clamd"
)

// checkPackages reports the scanner of packages, and advisory databases that are too old.
func checkPackages(ctx context.Context, c config.Config) []finding {
	return append(checkScanner(ctx, c.HostFiles.Scanner), checkAdvisories(c.State, time.Now())...)
}

// checkScanner reports which scanner packages.scan of a policy uses.
func checkScanner(ctx context.Context, address string) []finding {
	const name = "scanner"
	s, err := clamd.New(address)
	if err != nil {
		return []finding{{name, resultWarn, fault.PublicText(err), "correct package_scanner"}}
	}
	version, err := s.Ready(ctx)
	switch {
	case err == nil:
		return []finding{{name, resultOK, version + " at " + s.Address(), ""}}
	case address == "" && errors.Is(err, fs.ErrNotExist):
		// Most hosts have none, and most policies need none.
		return []finding{{name, resultOK, "none at " + s.Address() + "; policies with packages.scan refuse all packages", ""}}
	}
	return []finding{{name, resultWarn, fault.PublicText(err), fault.HintOf(err)}}
}

// checkAdvisories warns about databases that are too old to know current vulnerabilities.
func checkAdvisories(state string, now time.Time) []finding {
	const name = "advisories"
	list, err := advisory.Open(state).List()
	if err != nil {
		return []finding{{name, resultWarn, err.Error(), ""}}
	}
	var out []finding
	for _, d := range list {
		const fix = "download and import it again: crannog cache advisories import"
		switch {
		case d.Damaged:
			out = append(out, finding{name, resultWarn, "the database of " + string(d.Ecosystem) + " is damaged", fix})
		case d.Stale(advisory.StaleAfter, now):
			out = append(out, finding{name, resultWarn, fmt.Sprintf("the database of %s is older than %d days; newer advisories are unknown", d.Ecosystem, advisory.StaleAfter/(24*time.Hour)), fix})
		default:
			out = append(out, finding{name, resultOK, fmt.Sprintf("%s: as of %s", d.Ecosystem, d.AsOf().UTC().Format(time.DateOnly)), ""})
		}
	}
	return out
}
