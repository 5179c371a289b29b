package certs

import (
	"crypto/x509"
	"encoding/pem"
	"slices"

	"github.com/crannog/crannog/internal/fault"
)

// File is one file of the sandbox: content (Data) or a symbolic link (Link).
type File struct {
	Path string
	Mode uint32
	Data []byte
	Link string
	// Append is set if Data is appended to the file.
	Append bool
	// Around, if set, means that Data is appended to a part of the existing file.
	Around *Around
}

// Around selects the part of a file that is preserved after a new beginning.
type Around struct {
	Head     []byte
	From, To int // the part that stays
	Length   int // of the file that contains the part
}

// Trust has the files and variables that make programs in a sandbox accept the authority's leaves.
// The files replace whatever exists at their paths, including links.
type Trust struct {
	Files []File
	Env   map[string]string
}

// Paths of these files in a sandbox.
const (
	// BundlePath has all roots. It is the path in Debian, Alpine and Arch, so programs find it
	// without a variable.
	BundlePath = "/etc/ssl/certs/ca-certificates.crt"
	// AuthorityPath has only the sandbox's own authority.
	AuthorityPath = "/etc/ssl/certs/crannog.pem"
	// JavaPath is a Java trust store with all roots. Debian's and Alpine's
	// Java find it by themselves.
	JavaPath = "/etc/ssl/certs/java/cacerts"
)

// otherBundles are the paths of other distributions and languages. They become links, because links
// need no memory in the sandbox, while a bundle has 200 KiB.
var otherBundles = []string{
	"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL: curl, git, Go
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL: OpenSSL
	"/etc/ssl/ca-bundle.pem",                            // SUSE
	"/etc/ssl/cert.pem",                                 // Alpine's and BSD's OpenSSL
}

// bundleVariables are variables whose value is the path of a file with all roots.
var bundleVariables = []string{
	"SSL_CERT_FILE",                      // OpenSSL, and so Python, Ruby, PHP; Go; rustls
	"CURL_CA_BUNDLE",                     // curl
	"GIT_SSL_CAINFO",                     // git
	"REQUESTS_CA_BUNDLE",                 // Python requests
	"PIP_CERT",                           // pip
	"CARGO_HTTP_CAINFO",                  // cargo
	"DENO_CERT",                          // Deno
	"AWS_CA_BUNDLE",                      // AWS's SDKs
	"NIX_SSL_CERT_FILE",                  // Nix
	"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",   // gRPC's C core
	"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE", // gcloud
	"BUNDLE_SSL_CA_CERT",                 // Ruby's bundler
}

// OtherBundles returns the paths at which the sandbox gets links to the bundle.
func OtherBundles() []string { return slices.Clone(otherBundles) }

// Bundle has the public roots, which every sandbox gets for connections that are not decrypted.
// Reading a bundle takes milliseconds, so it is read once and shared by all sandboxes. It is
// immutable.
type Bundle struct {
	pem   []byte
	java  []byte // entries of a Java trust store
	count int
}

// ReadBundle reads a PEM bundle, such as the host's own. It uses only the certificates.
func ReadBundle(data []byte) (*Bundle, error) {
	roots, err := certificates(data)
	if err != nil {
		return nil, err
	}
	b := &Bundle{count: len(roots)}
	for i, c := range roots {
		b.pem = append(b.pem, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		b.java = append(b.java, storeEntry(rootName(i), c)...)
	}
	return b, nil
}

// Trust returns the files and variables. stores are the paths of further Java trust stores in the
// image, each of which is replaced by a link. A variable that sets Java's trust store would make
// Java print a line at every start.
func (a *Authority) Trust(b *Bundle, stores ...string) Trust {
	own := a.Certificate()
	t := appended(own, a.root)
	t.Files = append(t.Files,
		File{Path: BundlePath, Mode: 0o644, Data: slices.Concat(b.pem, own)},
		File{Path: JavaPath, Mode: 0o644, Data: keyStore(b, a.root)},
	)
	for _, path := range stores {
		if path != JavaPath {
			t.Files = append(t.Files, File{Path: path, Mode: 0o777, Link: JavaPath})
		}
	}
	return t
}

// appended returns the trust without the bundle and the Java store.
func appended(own []byte, root *x509.Certificate) Trust {
	t := Trust{Env: map[string]string{
		// Node reads this file in addition to its own roots at each start, so it gets the short
		// one.
		"NODE_EXTRA_CA_CERTS": AuthorityPath,
	}}
	for _, name := range bundleVariables {
		t.Env[name] = BundlePath
	}
	t.Files = append(t.Files,
		File{Path: AuthorityPath, Mode: 0o644, Data: own},
		// A link in OpenSSL's directory of roots, for programs without environment variables, as
		// under sudo or cron.
		File{Path: "/etc/ssl/certs/" + subjectHash(root) + ".0", Mode: 0o777, Link: AuthorityPath},
	)
	for _, path := range otherBundles {
		t.Files = append(t.Files, File{Path: path, Mode: 0o777, Link: BundlePath})
	}
	return t
}

// Addition is like Trust for a sandbox that already has a bundle at BundlePath, to which a
// certificate is appended, so that no large file is sent into the sandbox. It does not include
// Java's store, to which nothing can be appended this way.
func Addition(certificate []byte) (Trust, error) {
	root, err := certificates(certificate)
	if err != nil {
		return Trust{}, err
	}
	// Encode it again, so that only the certificate is sent.
	own := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root[0].Raw})
	t := appended(own, root[0])
	// The line break is needed if the bundle's last line has none.
	t.Files = append(t.Files, File{Path: BundlePath, Mode: 0o644, Data: slices.Concat([]byte("\n"), own), Append: true})
	return t, nil
}

// JavaStore returns a Java trust store with the public roots and one more.
func JavaStore(b *Bundle, certificate []byte) (File, error) {
	root, err := certificates(certificate)
	if err != nil {
		return File{}, err
	}
	return File{Path: JavaPath, Mode: 0o644, Data: keyStore(b, root[0])}, nil
}

// JavaAddition is like JavaStore for a sandbox that already has a store at JavaPath, so that only a
// few bytes are sent into the sandbox. It returns false if nothing can be added to the store. If the
// sandbox has another store, the guest adds the same entry to that.
func JavaAddition(store, certificate []byte) (File, bool, error) {
	root, err := certificates(certificate)
	if err != nil {
		return File{}, false, err
	}
	around, tail, ok := storeAddition(store, root[0])
	return File{Path: JavaPath, Mode: 0o644, Data: tail, Around: &around}, ok, nil
}

// certificates parses a PEM bundle. It ignores blocks of other kinds, so that a private key beside
// a certificate never enters a sandbox. A bundle without certificates is an error, because the path
// is probably wrong.
func certificates(bundle []byte) ([]*x509.Certificate, error) {
	var all []*x509.Certificate
	for {
		block, rest := pem.Decode(bundle)
		if block == nil {
			break
		}
		bundle = rest
		if block.Type != "CERTIFICATE" {
			continue
		}
		// Go cannot parse some roots in real bundles. Go's own pool skips them too.
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		return nil, fault.New(fault.Invalid, "bundle_empty", "a bundle of certificate roots has no certificate").
			WithHint("give a PEM file, such as /etc/ssl/certs/ca-certificates.crt of the ca-certificates package")
	}
	return all, nil
}
