package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strings"
	"testing"
)

func example() manifest {
	hash := strings.Repeat("ab", 32)
	return manifest{
		Format: manifestFormat, ID: "b", Parent: "a", Made: 1,
		Parts: []part{{Name: StateFile, Bytes: 3, SHA256: hash}, {Name: MetaFile, SHA256: hash}},
		Bulk:  bulk{Name: PagesFile, Kind: Pages, Bytes: 8192, Tree: hash},
	}
}

func TestForeignManifestsAreRejected(t *testing.T) {
	sum := newSum()
	whole, err := example().seal(sum)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := openManifest(whole, sum); err != nil || m.ID != "b" {
		t.Fatalf("openManifest: got %+v, error %v", m, err)
	}
	body, err := json.Marshal(example())
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"an unknown field": {`"format":2`, `"format":2,"path":"/etc"`},
		"a repeated field": {`"format":2`, `"format":2,"format":2`},
		"another case":     {`"format"`, `"Format"`},
		"another format":   {`"format":2`, `"format":3`},
		"the first format": {`"format":2`, `"format":1`},
		"a path as name":   {`"Memory_1"`, `"../Memory_1"`},
		"a path as a part": {`"state"`, `"../state"`},
		"a name of ours":   {`"state"`, `"manifest"`},
		"one name twice":   {`"state"`, `"Memory_1"`},
		"another kind":     {`"kind":"pages"`, `"kind":"small"`},
		"a path as id":     {`"id":"b"`, `"id":"../b"`},
		"a path as parent": {`"parent":"a"`, `"parent":"a/b"`},
		"a negative size":  {`"bytes":8192`, `"bytes":-1`},
		"a huge size":      {`"bytes":8192`, `"bytes":9223372036854775807`},
		"a short hash":     {`"tree":"ab`, `"tree":"`},
		"no proof":         {`,"tree":"` + strings.Repeat("ab", 32) + `"`, ``},
		"two proofs":       {`"tree"`, `"boot":"x","tree"`},
	} {
		bad := bytes.Replace(body, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(bad, body) {
			t.Fatalf("%s: nothing was changed", name)
		}
		// The manifest is rejected even with a MAC under the right key.
		mac, err := authenticate(sum, bad)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := openManifest([]byte(hexLine(mac)+string(bad)), sum); err == nil {
			t.Errorf("a manifest with %s was read", name)
		}
	}
	mac, _ := authenticate(sum, append(body, ' '))
	if _, err := openManifest([]byte(hexLine(mac)+string(body)+" "), sum); err == nil {
		t.Error("openManifest accepted bytes after the end")
	}
}

func hexLine(b []byte) string {
	const digits = "0123456789abcdef"
	var s strings.Builder
	for _, c := range b {
		s.WriteByte(digits[c>>4])
		s.WriteByte(digits[c&15])
	}
	return s.String() + "\n"
}

func FuzzManifest(f *testing.F) {
	complete := example()
	fresh := example()
	fresh.Bulk.Tree, fresh.Bulk.Boot, fresh.Bulk.Seen = "", "boot", &identity{Inode: 1}
	files := manifest{Format: manifestFormat, ID: "f", Bulk: bulk{Name: FilesFile, Kind: Blob, Tree: complete.Bulk.Tree}}
	for _, m := range []manifest{complete, fresh, files} {
		data, err := m.seal(newSum())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	hash := strings.Repeat("ab", 32)
	first, err := seal(firstManifest{
		Format: firstFormat, ID: "b", State: &part{SHA256: hash}, Meta: &part{SHA256: hash}, Bulk: bulk{Name: PagesFile, Tree: hash},
	}, newSum())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(first)
	f.Add([]byte("\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := decodeManifest(data, memoryParts)
		if err != nil {
			return
		}
		if validID(m.ID) != nil || m.Bulk.Bytes < 0 || checkParts(m.declared()) != nil {
			t.Fatalf("decodeManifest accepted the invalid manifest %+v", m)
		}
		body, err := json.Marshal(m)
		if err != nil || !bytes.HasSuffix(data, body) && !bytes.Contains(data, []byte(`"format":1,`)) {
			t.Fatalf("%q is read as %s", data, body)
		}
		if m.bytes() < 0 {
			t.Fatal("sizes wrap around")
		}
	})
}

func FuzzIndex(f *testing.F) {
	name := newName()
	for _, x := range []index{
		{},
		{pages: 5, runs: []run{{0, 0, 5}}},
		{pages: 9, packs: []string{name, newName()}, runs: []run{{1, 7, 3}, {0, 0, 2}, {2, 0, 4}}},
		{pages: 2, packs: []string{name, name}, runs: []run{{3, 1 << 63, 2}}},
	} {
		data := x.encode()
		f.Add(data[:len(data)-sha256.Size])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		// The checksum is correct, because an attacker who changes an index can compute it.
		sum := sha256.Sum256(body)
		data := append(bytes.Clone(body), sum[:]...)
		x, err := decodeIndex(data)
		if err != nil {
			return
		}
		if !bytes.Equal(x.encode(), data) {
			t.Fatalf("%x is read as %+v", data, x)
		}
		var pages uint64
		for _, r := range x.runs {
			if int(r.pack) > len(x.packs) || r.at+r.count < r.at || int64((r.at+r.count)*pageBytes) < 0 {
				t.Fatalf("decodeIndex accepted the invalid run %+v", r)
			}
			pages += r.count
		}
		if pages != x.pages {
			t.Fatalf("the runs have %d pages, want %d", pages, x.pages)
		}
		for _, p := range x.packs {
			if strings.ContainsAny(p, "./") {
				t.Fatalf("decodeIndex accepted the pack name %q", p)
			}
		}
		x.compact()
		if _, err := decodeIndex(x.encode()); err != nil {
			t.Fatalf("decodeIndex after compact: %v", err)
		}
	})
}
