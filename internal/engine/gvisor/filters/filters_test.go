package filters_test

import (
	"slices"
	"strings"
	"testing"

	"gvisor.dev/gvisor/pkg/sentry/platform"
	bootconfig "gvisor.dev/gvisor/runsc/boot/filter/config"

	"github.com/crannog/crannog/internal/engine/gvisor/filters"
)

// gVisor looks up a program by a name that it derives from its settings. With another version of
// gVisor the names may differ, and every boot would compile the programs without a warning. The fix
// is go generate.
func TestProgramsOfSandboxArePrecompiled(t *testing.T) {
	if err := filters.Install(); err != nil {
		t.Fatal(err)
	}
	boot, gofer := filters.Names()
	key := bootconfig.Options{Platform: platform.StaticSeccompInfo{PlatformName: "systrap"}, HostFilesystem: true}.ConfigKey()
	if !slices.ContainsFunc(boot, func(name string) bool { return strings.HasSuffix(name, key) }) {
		t.Errorf("no program for %q among %q", key, boot)
	}
	if len(gofer) == 0 {
		t.Error("no program for the file server")
	}
}
