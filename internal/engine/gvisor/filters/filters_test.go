package filters_test

import (
	"slices"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/platform"
	bootconfig "gvisor.dev/gvisor/runsc/boot/filter/config"

	"github.com/crannog/crannog/internal/engine/gvisor/filters"
)

// A program is found by the name that gVisor makes of its settings. After a change of its version
// the names may differ, and every boot would quietly compile again: go generate repairs that.
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
