package build_test

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/crannog/crannog/internal/engine/docker/dockertest"
	"github.com/crannog/crannog/internal/testkit/hosttest"
	"github.com/crannog/crannog/internal/testkit/servetest"
)

// builder is a program that builds images.
type builder struct {
	run  func(ctx context.Context, args ...string) *exec.Cmd
	args []string // of build
	save func(name, file string) []string
}

// build builds a case and returns its image, or the builder's output if it fails.
func (b builder) build(t *testing.T, c buildCase) (v1.Image, string) {
	t.Helper()
	tag := "case-" + strings.ReplaceAll(c.name, "_", "-") + ":1"
	options := slices.Concat(b.args, c.options)
	if c.first {
		if out, err := b.run(t.Context(), slices.Concat(b.args, []string{"-t", "first:1", filepath.Join(c.dir, "first")})...).CombinedOutput(); err != nil {
			t.Fatalf("build first:1: %v\n%s", err, out)
		}
	}
	out, err := b.run(t.Context(), slices.Concat(options, []string{"-t", tag, c.dir})...).CombinedOutput()
	if err != nil {
		return nil, string(out)
	}
	file := filepath.Join(t.TempDir(), "image.tar")
	if out, err := b.run(t.Context(), b.save(tag, file)...).CombinedOutput(); err != nil {
		t.Fatalf("save: %v\n%s", err, out)
	}
	img, err := tarball.ImageFromPath(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	return img, string(out)
}

// crannogBuilder returns Crannog with base:1.
func crannogBuilder(t *testing.T, base string) builder {
	t.Helper()
	state := hosttest.ShortDir(t)
	servetest.Start(t, program, state)
	b := builder{
		run: func(ctx context.Context, args ...string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, program, args...)
			cmd.Env = append(os.Environ(), "CRANNOG_STATE="+state, "HOME=/nonexistent-home")
			return cmd
		},
		args: []string{"template", "build", "--progress", "plain", "--net", "none", "--no-cache"},
		save: func(name, file string) []string {
			return []string{"image", "export", name, "--format", "docker", "-o", file}
		},
	}
	if out, err := b.run(t.Context(), "image", "import", base).CombinedOutput(); err != nil {
		t.Fatalf("import: %v\n%s", err, out)
	}
	return b
}

// dockerBuilder returns the classic builder of a new Docker Engine with base:1.
func dockerBuilder(t *testing.T, base string) builder {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "dkb")
	must(t, err)
	daemon, err := dockertest.Start(dir, dockertest.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, daemon.Stop()) })
	b := builder{
		run: func(ctx context.Context, args ...string) *exec.Cmd {
			cmd := exec.CommandContext(ctx, "/usr/bin/docker", args...)
			cmd.Env = append(os.Environ(), "DOCKER_HOST="+daemon.Host, "DOCKER_BUILDKIT=0", "HOME=/nonexistent-home")
			return cmd
		},
		args: []string{"build", "--network", "none", "--no-cache"},
		save: func(name, file string) []string { return []string{"save", "-o", file, name} },
	}
	if out, err := b.run(t.Context(), "load", "-i", base).CombinedOutput(); err != nil {
		t.Fatalf("load: %v\n%s", err, out)
	}
	return b
}

// read returns all files of an image, after all of its layers.
func read(t *testing.T, img v1.Image) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	links := map[string][]string{}
	r := mutate.Extract(img)
	defer r.Close()
	for entries := tar.NewReader(r); ; {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		if h.Typeflag == tar.TypeLink {
			to := path.Clean(strings.TrimPrefix(h.Linkname, "/"))
			links[to] = append(links[to], name)
			continue
		}
		text, err := io.ReadAll(entries)
		must(t, err)
		e := entry{kind: kindOf(h.Typeflag), mode: h.Mode & 0o7777, uid: h.Uid, gid: h.Gid, text: string(text), at: h.ModTime}
		if h.Typeflag == tar.TypeSymlink {
			e.text, e.mode = h.Linkname, 0o777
		}
		all[name] = e
	}
	// Which of several names is the file is a matter of order.
	for to, names := range links {
		e, ok := all[to]
		if !ok {
			t.Errorf("the image has a link to the missing file %s", to)
			continue
		}
		names = append(names, to)
		slices.Sort(names)
		e.names = strings.Join(names, " ")
		for _, n := range names {
			all[n] = e
		}
	}
	return all
}

// settings are the parts of a configuration that instructions set.
func settings(t *testing.T, img v1.Image) map[string]string {
	t.Helper()
	f, err := img.ConfigFile()
	must(t, err)
	c := f.Config
	return map[string]string{
		"Env": nilIfEmpty(c.Env), "Cmd": nilIfEmpty(c.Cmd), "Entrypoint": nilIfEmpty(c.Entrypoint), "WorkingDir": c.WorkingDir, "User": c.User,
		"Labels": fmt.Sprint(c.Labels), "ExposedPorts": fmt.Sprint(c.ExposedPorts), "Volumes": fmt.Sprint(c.Volumes), "StopSignal": c.StopSignal,
		"Healthcheck": healthcheck(c.Healthcheck), "Shell": nilIfEmpty(c.Shell), "OnBuild": nilIfEmpty(c.OnBuild), "Author": f.Author,
		"OS": f.OS, "Architecture": f.Architecture,
	}
}

func nilIfEmpty(list []string) string { return fmt.Sprintf("%q", list) }

func healthcheck(h *v1.HealthConfig) string {
	if h == nil {
		return ""
	}
	return fmt.Sprintf("%+v", *h)
}

// TestImagesAreThoseOfClassicBuilder builds Dockerfiles with Crannog and with the classic builder
// of a Docker Engine, and compares the images file by file.
func TestImagesAreThoseOfClassicBuilder(t *testing.T) {
	hosttest.Need(t, hosttest.Root, dockertest.Requirement, hosttest.Program("busybox"))
	if !hosttest.Full() {
		t.Skip("make test-build runs this test")
	}
	base := filepath.Join(t.TempDir(), "base.tar")
	writeBase(t, base)
	docker, crannog := dockerBuilder(t, base), crannogBuilder(t, base)
	files, err := filepath.Glob("testdata/classic/*.txtar")
	must(t, err)
	const least = 30
	compared := 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			c := loadCase(t, file)
			theirs, theirOutput := docker.build(t, c)
			ours, ourOutput := crannog.build(t, c)
			if c.fails {
				if theirs != nil || ours != nil {
					t.Errorf("build: Docker accepts it: %v, Crannog accepts it: %v, want neither\n%s\n%s", theirs != nil, ours != nil, theirOutput, ourOutput)
				}
				return
			}
			if theirs == nil || ours == nil {
				t.Fatalf("build: Docker:\n%s\nCrannog:\n%s", theirOutput, ourOutput)
			}
			found := compareFiles(read(t, theirs), read(t, ours))
			want, got := settings(t, theirs), settings(t, ours)
			for key := range want {
				if want[key] != got[key] {
					found[key] = fmt.Sprintf("got %v, want %v", got[key], want[key])
				}
			}
			for name, text := range found {
				if !slices.Contains(c.differs, name) {
					t.Errorf("%s: %s, as the classic builder makes it", name, text)
				}
			}
			for _, name := range c.differs {
				if found[name] == "" {
					t.Errorf("%s does not differ any more", name)
				}
			}
			compared++
		})
	}
	if compared < least && !t.Failed() {
		t.Errorf("compared %d images, want at least %d", compared, least)
	}
}

// compareFiles returns the differences between the files of two images, by name. Times are compared
// where they come from the context or an archive, and not from the build.
func compareFiles(want, got map[string]entry) map[string]string {
	found := map[string]string{}
	for name, w := range want {
		g, ok := got[name]
		switch {
		case !ok:
			found[name] = "it is missing, want " + w.String()
		case g.String() != w.String() || g.text != w.text:
			found[name] = fmt.Sprintf("got %s, want %s", g, w)
		case w.kind == "file" && w.at.Year() < 2020 && !g.at.Equal(w.at):
			found[name] = fmt.Sprintf("got the time %v, want %v", g.at, w.at)
		}
	}
	for name, g := range got {
		if _, ok := want[name]; !ok {
			found[name] = "it should not exist: " + g.String()
		}
	}
	return found
}

// TestBuildKitInstructions compares images of instructions and options that only BuildKit has with
// the lists of files in the cases.
func TestBuildKitInstructions(t *testing.T) {
	hosttest.Need(t, hosttest.Root, hosttest.Program("busybox"))
	if !hosttest.Full() {
		t.Skip("make test-build runs this test")
	}
	base := filepath.Join(t.TempDir(), "base.tar")
	writeBase(t, base)
	crannog := crannogBuilder(t, base)
	baseImage, err := tarball.ImageFromPath(base, nil)
	must(t, err)
	inBase := read(t, baseImage)
	files, err := filepath.Glob("testdata/buildkit/*.txtar")
	must(t, err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			c := loadCase(t, file)
			img, out := crannog.build(t, c)
			if img == nil {
				t.Fatalf("build:\n%s", out)
			}
			var got []string
			for name, e := range read(t, img) {
				if before, ok := inBase[name]; ok && before.String() == e.String() {
					continue
				}
				line := fmt.Sprintf("%s %s %04o %d:%d", name, e.kind, e.mode, e.uid, e.gid)
				if text := strings.ReplaceAll(strings.TrimRight(e.text, "\n"), "\n", `\n`); text != "" {
					if strings.ContainsRune(text, 0) {
						text = "*" // an archive
					}
					line += " " + text
				}
				got = append(got, line)
			}
			slices.Sort(got)
			if text := strings.Join(got, "\n") + "\n"; text != c.want {
				t.Errorf("the image has:\n%s\nwant:\n%s", text, c.want)
			}
		})
	}
}
