package templatebuild_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/crannog/crannog/internal/build/templatebuild"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/image/imagetest"
	"github.com/crannog/crannog/internal/sandbox"
)

var hash = strings.Repeat("ab", 32)

// run returns a RUN step.
func run(command string, user ...string) templatebuild.Step {
	return templatebuild.Step{Kind: "RUN", Args: append([]string{command}, user...)}
}

func TestBuildCreatesTemplateVersion(t *testing.T) {
	host := imagetest.Registry(t)
	r := openService(t, t.TempDir(), host)
	image := r.pull(host)
	record := r.request("ns/app:v1", "v2")
	r.upload(record, hash, tarOf(t, tar.Header{Name: "src/a", Uname: "text"}, tar.Header{Name: "src/b", Typeflag: tar.TypeLink, Linkname: "src/a"}))
	if present, _, err := r.Link(alice, record.Template, hash); err != nil || !present {
		t.Errorf("Link after the upload: got error %v, want the files present", err)
	}
	spec := templatebuild.Spec{Image: image, Start: "serve", Ready: "check", Steps: []templatebuild.Step{
		{Kind: "ENV", Args: []string{"X", `"$A" $HOME`}},
		{Kind: "COPY", Args: []string{"src", "/srv/", "", "0600"}, Files: hash},
		run("one"), run("two", "root"), run("three"),
		{Kind: "USER", Args: []string{"1234"}}, {Kind: "WORKDIR", Args: []string{"deep"}}, run("four"),
	}}
	if err := r.Start(t.Context(), alice, record.Template, record.ID, spec); err != nil {
		t.Fatal(err)
	}
	status, log := r.end(record)
	if status.State != templatebuild.Ready || !slices.Equal(status.Tags, []string{"v1", "v2"}) {
		t.Fatalf("build: got %+v, want ready:\n%s", status, strings.Join(log, "\n"))
	}
	if got, want := r.sandboxes.commands()[1:], []string{"user: one", "root: two", "user: three", "1234: four"}; !slices.Equal(got, want) {
		t.Errorf("commands: got %q, want %q", got, want)
	}
	for _, line := range []string{"info [template] RUN one", "info printed", "info and without an end"} {
		if !slices.Contains(log, line) {
			t.Errorf("the log has no %q:\n%s", line, strings.Join(log, "\n"))
		}
	}
	found, err := r.catalog.Inspect(alice, "ns/app:v2")
	if err != nil {
		t.Fatal(err)
	}
	v, _ := found.Tagged("v2")
	if found.ID != record.Template || found.BuildOf(v) != record.ID || found.Tags["v1"] != found.Tags["default"] || v.Start == nil || len(v.Start.Ready) == 0 {
		t.Errorf("Inspect: got template %+v, want the version of this build", found)
	}
	ref, _ := sandbox.ParseReference("ns/app")
	resolved, err := r.catalog.FollowedBy(hostOnly{}).Resolve(t.Context(), ref)
	if err != nil || resolved.DefaultUser != "1234" || resolved.DefaultDir != "/home/user/deep" || resolved.Env["X"] != `"image" /home/user` {
		t.Errorf("Resolve: got user %q, directory %q, variables %v, error %v", resolved.DefaultUser, resolved.DefaultDir, resolved.Env, err)
	}
	if list := r.leftovers(); len(list) > 0 {
		t.Errorf("files left in the working directory: %q", list)
	}

	// A build on a template runs only the new steps.
	spec = templatebuild.Spec{Template: "ns/app:v1", Steps: []templatebuild.Step{run("five")}}
	if status, log := r.build("child", spec); status.State != templatebuild.Ready {
		t.Fatalf("build on a template: got %+v:\n%s", status, strings.Join(log, "\n"))
	}
	if got := r.sandboxes.commands(); !slices.Equal(got, []string{"1234: five"}) {
		t.Errorf("build on a template: got commands %q", got)
	}
	child, err := r.catalog.Inspect(alice, "child")
	if v, _ := child.Newest(); err != nil || v.Start == nil || !slices.Contains(v.Start.Command, "serve") {
		t.Errorf("Inspect of the child: got error %v, want the inherited program", err)
	}
	if r.build("child", spec); len(r.sandboxes.commands()) > 0 {
		t.Error("a cached step ran again")
	}
	spec.Steps[0].Force = true
	if r.build("child", spec); !slices.Equal(r.sandboxes.commands(), []string{"1234: five"}) {
		t.Error("a forced step did not run")
	}
	if text, err := json.Marshal(r.entries.Entries()); err != nil || !bytes.Contains(text, []byte("template.build")) {
		t.Errorf("the audit log has no build: %s, %v", text, err)
	}
}

func TestHostileUploadsAreRejected(t *testing.T) {
	host := imagetest.Registry(t)
	r := openService(t, t.TempDir(), host)
	image := r.pull(host)
	for what, data := range map[string][]byte{
		"no tar":                  []byte("not a tar at all"),
		"a path outside":          tarOf(t, tar.Header{Name: "../out", Uname: "x"}),
		"an absolute path":        tarOf(t, tar.Header{Name: "/out", Uname: "x"}),
		"a link and a file in it": tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/tmp"}, tar.Header{Name: "l/out", Uname: "x"}),
		"a hard link out":         tarOf(t, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "../../etc/passwd"}),
		"a hard link to a link":   tarOf(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "l"}),
		"a device":                tarOf(t, tar.Header{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}),
	} {
		record := r.request("hostile")
		r.upload(record, hash, data)
		err := r.Start(t.Context(), alice, record.Template, record.ID, templatebuild.Spec{Image: image, Steps: []templatebuild.Step{{Kind: "COPY", Args: []string{".", "/x"}, Files: hash}}})
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := r.end(record); status.State != templatebuild.Failed || status.Code != "build_context_invalid" {
			t.Errorf("%s: got %+v, want build_context_invalid", what, status)
		}
	}
	if list := r.leftovers(); len(list) > 0 {
		t.Errorf("files left in the working directory: %q", list)
	}
	record := r.request("hostile")
	for _, bad := range []string{"", "../" + hash, strings.ToUpper(hash), hash + "0"} {
		if _, _, err := r.Link(alice, record.Template, bad); fault.CodeOf(err) != "files_hash_invalid" {
			t.Errorf("Link of the hash %q: got %v, want files_hash_invalid", bad, err)
		}
	}
	if err := r.Receive("unknown", bytes.NewReader(nil)); fault.KindOf(err) != fault.NotFound {
		t.Errorf("Receive with an unknown token: got %v, want NotFound", err)
	}
}

func TestBuildErrors(t *testing.T) {
	host := imagetest.Registry(t)
	r := openService(t, t.TempDir(), host)
	image := r.pull(host)
	for name, c := range map[string]struct {
		spec       templatebuild.Spec
		code, step string
	}{
		"an image elsewhere":   {templatebuild.Spec{Image: host + "/other"}, "image_not_found", "base"},
		"no template":          {templatebuild.Spec{Template: "none"}, "template_not_found", "base"},
		"the host's programs":  {templatebuild.Spec{Template: "base"}, "build_base_host", "base"},
		"a failing command":    {templatebuild.Spec{Image: image, Steps: []templatebuild.Step{run("ok"), run("fail")}}, "build_step_failed", "2"},
		"files not sent":       {templatebuild.Spec{Image: image, Steps: []templatebuild.Step{{Kind: "COPY", Args: []string{"a", "b"}, Files: strings.Repeat("0", 64)}}}, "files_missing", ""},
		"an unknown step":      {templatebuild.Spec{Image: image, Steps: []templatebuild.Step{{Kind: "FROM"}}}, "build_step_invalid", ""},
		"a NUL":                {templatebuild.Spec{Image: image, Steps: []templatebuild.Step{run("a\x00")}}, "build_step_invalid", ""},
		"half a variable":      {templatebuild.Spec{Image: image, Steps: []templatebuild.Step{{Kind: "ENV", Args: []string{"A"}}}}, "build_step_invalid", ""},
		"an account as a path": {templatebuild.Spec{Image: image, Steps: []templatebuild.Step{{Kind: "USER", Args: []string{"../x"}}}}, "build_step_invalid", ""},
	} {
		if status, log := r.build("bad", c.spec); status.State != templatebuild.Failed || status.Code != c.code || status.Step != c.step || status.Error == "" {
			t.Errorf("%s: got status %+v, want code %s in step %q:\n%s", name, status, c.code, c.step, strings.Join(log, "\n"))
		}
	}
	if _, err := r.catalog.Inspect(alice, "bad"); fault.KindOf(err) != fault.NotFound {
		t.Errorf("Inspect after failed builds: got %v, want NotFound", err)
	}
	if _, err := r.Request(t.Context(), alice, templatebuild.Request{Name: "base"}); fault.KindOf(err) != fault.Exists {
		t.Errorf("Request with the name of a template of the host: got %v, want Exists", err)
	}
}

func TestBuildsOfOtherKeyAreHidden(t *testing.T) {
	host := imagetest.Registry(t)
	r := openService(t, t.TempDir(), host)
	image := r.pull(host)
	record := r.request("mine")
	spec := templatebuild.Spec{Image: image}
	if err := r.Start(t.Context(), bob, record.Template, record.ID, spec); fault.KindOf(err) != fault.NotFound {
		t.Errorf("Start with another key: got %v, want NotFound", err)
	}
	if _, _, err := r.Status(bob, record.Template, record.ID, 0, 10); fault.KindOf(err) != fault.NotFound {
		t.Errorf("Status with another key: got %v, want NotFound", err)
	}
	if _, _, err := r.Link(bob, record.Template, hash); fault.KindOf(err) != fault.NotFound {
		t.Errorf("Link with another key: got %v, want NotFound", err)
	}
	if found, err := r.Drop(bob, record.Template); found || err != nil {
		t.Errorf("Drop with another key: got %v, error %v, want false", found, err)
	}
	if list, err := r.List(bob); len(list) > 0 || err != nil {
		t.Errorf("List with another key: got %v, error %v, want no build", list, err)
	}
	if err := r.Start(t.Context(), alice, record.Template, record.ID, spec); err != nil {
		t.Fatal(err)
	}
	if status, log := r.end(record); status.State != templatebuild.Ready {
		t.Fatalf("build: got %+v, log %q", status, log)
	}
	if _, err := r.Request(t.Context(), bob, templatebuild.Request{Name: "mine"}); fault.KindOf(err) != fault.Exists {
		t.Errorf("Request with a name that is taken: got %v, want Exists", err)
	}
}

func TestCanceledAndInterruptedBuilds(t *testing.T) {
	host, dir := imagetest.Registry(t), t.TempDir()
	r := openService(t, dir, host)
	image := r.pull(host)
	spec := templatebuild.Spec{Image: image, Steps: []templatebuild.Step{run("wait")}}
	begin := func() templatebuild.Record {
		record := r.request("waits")
		if err := r.Start(t.Context(), alice, record.Template, record.ID, spec); err != nil {
			t.Fatal(err)
		}
		<-r.sandboxes.waits
		return record
	}
	record := begin()
	if err := r.Start(t.Context(), alice, record.Template, record.ID, spec); fault.KindOf(err) != fault.Conflict {
		t.Errorf("second Start: got %v, want Conflict", err)
	}
	if found, err := r.Drop(alice, record.Template); !found || err != nil {
		t.Errorf("Drop: got %v, error %v, want true", found, err)
	}
	if status, _ := r.end(record); status.Code != "build_canceled" {
		t.Errorf("status after Drop: got %+v, want build_canceled", status)
	}
	r.sandboxes.waits = make(chan struct{})
	record = begin()
	r.Close()
	if status, _ := r.end(record); status.Code != "build_canceled" || !strings.Contains(status.Error, "canceled") {
		t.Errorf("status after Close: got %+v, want build_canceled", status)
	}
	if list := r.leftovers(); len(list) > 0 {
		t.Errorf("files left in the working directory: %q", list)
	}
	if _, err := r.Request(t.Context(), alice, templatebuild.Request{Name: "late"}); fault.KindOf(err) != fault.Unavailable {
		t.Errorf("Request after Close: got %v, want Unavailable", err)
	}
	// The record and the log of a build outlive the server.
	next := openService(t, dir, host)
	if status, log := next.end(record); status.State != templatebuild.Failed || len(log) == 0 {
		t.Errorf("status after a restart: got %+v, log %q, want a failed build with its log", status, log)
	}
}
