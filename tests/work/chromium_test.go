package work_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crannog/crannog"
	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/testkit/hosttest"
)

// page is a page that Chromium renders in a separate, confined process.
const page = `<p id=sum></p><script>document.getElementById("sum").textContent = "sum " + (40 + 2)</script>`

// confinement prints the page's sum, and whether a process that renders pages has a system call
// filter and its own user namespace.
const confinement = `
timeout 120 chromium --headless --disable-gpu --user-data-dir=/tmp/one --dump-dom file:///workspace/page.html 2>/dev/null | grep -o 'sum 42'
chromium --headless --disable-gpu --user-data-dir=/tmp/two --remote-debugging-port=0 file:///workspace/page.html >/dev/null 2>&1 &
confined=0
while [ $confined = 0 ] && kill -0 $!; do
	for p in $(pgrep -f type=renderer); do
		if grep -q 'Seccomp:[[:space:]]2' /proc/$p/status && [ "$(readlink /proc/$p/ns/user)" != "$(readlink /proc/self/ns/user)" ]; then
			confined=1
		fi
	done
	sleep 0.1
done 2>/dev/null
kill -9 $!
echo confined $confined
`

// F11: Chromium confines its renderers inside as on any Linux, without a flag that disables the
// confinement. F30: it starts by its name, which reads /etc.
func TestF11ChromiumConfinesRenderers(t *testing.T) {
	if _, err := os.Stat("/usr/lib/chromium/chromium"); err != nil {
		t.Skip("Debian's Chromium is not on this host")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "page.html"), []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	client := local(t)
	ctx, cancel := context.WithDeadline(t.Context(), hosttest.Deadline())
	defer cancel()
	sb, err := client.Create(ctx, crannog.Ephemeral(), crannog.Workspace(dir), crannog.Limits(api.Limits{MemoryBytes: 3 << 30}))
	if err != nil {
		t.Fatal(err)
	}
	defer sb.Kill(context.WithoutCancel(ctx))
	out, err := sb.CommandContext(ctx, "bash", "-c", confinement).Output()
	if got := strings.TrimSpace(string(out)); err != nil || got != "sum 42\nconfined 1" {
		t.Errorf("got %q, %v", got, err)
	}
}
