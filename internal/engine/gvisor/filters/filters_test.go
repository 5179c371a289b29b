package filters_test

import (
	"slices"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/platform"
	bootconfig "gvisor.dev/gvisor/runsc/boot/filter/config"

	"github.com/crannog/crannog/internal/engine/gvisor/filters"
)

// A program is looked up by the name that gVisor derives from its settings. With another version of
// gVisor the names may differ, and every boot would compile the programs again without a warning.
// go generate fixes that.
func TestTheProgramsThatABoxAsksForAreThere(t *testing.T) {
	if err := filters.Install(); err != nil {
		t.Fatal(err)
	}
	boot, gofer := filters.Names()
	asked := bootconfig.Options{Platform: platform.StaticSeccompInfo{PlatformName: "systrap"}, HostFilesystem: true}.ConfigKey()
	if !slices.ContainsFunc(boot, func(name string) bool { return strings.HasSuffix(name, asked) }) {
		t.Errorf("no program for %q among %q", asked, boot)
	}
	if len(gofer) == 0 {
		t.Error("no program for the file server")
	}
}
