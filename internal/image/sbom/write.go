package sbom

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/fault"
)

// Formats of documents.
const (
	SPDX      = "spdx"
	CycloneDX = "cyclonedx"
)

// Subject is the image that a document describes.
type Subject struct {
	Name, Digest string
	Created      time.Time
}

// CheckFormat returns an error for an unknown format.
func CheckFormat(format string) error {
	if format == SPDX || format == CycloneDX {
		return nil
	}
	return fault.Newf(fault.Invalid, "sbom_format_invalid", "%.50q is not a format of SBOMs", format).WithHint("a format is spdx or cyclonedx")
}

// Write writes a list as JSON. The same image gives the same document.
func Write(w io.Writer, format string, of Subject, list List) error {
	if err := CheckFormat(format); err != nil {
		return err
	}
	var document any = spdxOf(of, list)
	if format == CycloneDX {
		document = cycloneOf(of, list)
	}
	data, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// URL returns the package URL.
func (p Package) URL(distro string) string {
	namespace, name, query := "", p.Name, ""
	switch p.Kind {
	case Deb, Apk:
		if namespace = distro; namespace == "" {
			namespace = map[string]string{Deb: "debian", Apk: "alpine"}[p.Kind]
		}
		if p.Arch != "" {
			query = "?arch=" + url.QueryEscape(p.Arch)
		}
	case PyPI:
		name = strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}
	parts := append([]string{p.Kind, namespace}, strings.Split(name, "/")...)
	parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
	for i := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(parts[i]), "@", "%40")
	}
	out := "pkg:" + strings.Join(parts, "/")
	if p.Version != "" {
		out += "@" + url.PathEscape(p.Version)
	}
	return out + query
}

type (
	spdxDocument struct {
		Version      string         `json:"spdxVersion"`
		License      string         `json:"dataLicense"`
		ID           string         `json:"SPDXID"`
		Name         string         `json:"name"`
		Namespace    string         `json:"documentNamespace"`
		Creation     spdxCreation   `json:"creationInfo"`
		Packages     []spdxPackage  `json:"packages"`
		Relationship []spdxRelation `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Version   string         `json:"versionInfo,omitempty"`
		Download  string         `json:"downloadLocation"`
		Analyzed  bool           `json:"filesAnalyzed"`
		Concluded string         `json:"licenseConcluded"`
		Declared  string         `json:"licenseDeclared"`
		Copyright string         `json:"copyrightText"`
		Source    string         `json:"sourceInfo,omitempty"`
		Purpose   string         `json:"primaryPackagePurpose,omitempty"`
		Checksums []spdxChecksum `json:"checksums,omitempty"`
		Refs      []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// noAssertion is the value of a field about which nothing is stated.
const noAssertion = "NOASSERTION"

// spdxOf returns a document of SPDX 2.3.
func spdxOf(of Subject, list List) spdxDocument {
	const document, image = "SPDXRef-DOCUMENT", "SPDXRef-Image"
	hex := strings.TrimPrefix(of.Digest, "sha256:")
	one := func(id, name, version string) spdxPackage {
		return spdxPackage{ID: id, Name: name, Version: version, Download: noAssertion, Concluded: noAssertion, Declared: noAssertion, Copyright: noAssertion}
	}
	root := one(image, of.Name, of.Digest)
	root.Purpose, root.Checksums = "CONTAINER", []spdxChecksum{{"SHA256", hex}}
	out := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: document, Name: of.Name, Namespace: "https://github.com/crannog/crannog/sbom/" + hex,
		Creation: spdxCreation{of.Created.UTC().Format(time.RFC3339), []string{"Tool: crannog"}},
		Packages: []spdxPackage{root}, Relationship: []spdxRelation{{document, "DESCRIBES", image}},
	}
	for i, p := range list.Packages {
		entry := one(fmt.Sprintf("SPDXRef-Package-%d", i+1), p.Name, p.Version)
		entry.Source, entry.Refs = "found in /"+p.Found, []spdxRef{{"PACKAGE-MANAGER", "purl", p.URL(list.Distro)}}
		out.Packages = append(out.Packages, entry)
		out.Relationship = append(out.Relationship, spdxRelation{image, "CONTAINS", entry.ID})
	}
	return out
}

type (
	cycloneDocument struct {
		Format     string             `json:"bomFormat"`
		Version    string             `json:"specVersion"`
		Revision   int                `json:"version"`
		Metadata   cycloneMetadata    `json:"metadata"`
		Components []cycloneComponent `json:"components"`
	}
	cycloneMetadata struct {
		Timestamp string           `json:"timestamp"`
		Component cycloneComponent `json:"component"`
	}
	cycloneComponent struct {
		Type    string `json:"type"`
		Ref     string `json:"bom-ref"`
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
		URL     string `json:"purl,omitempty"`
	}
)

// cycloneOf returns a document of CycloneDX 1.5.
func cycloneOf(of Subject, list List) cycloneDocument {
	out := cycloneDocument{
		Format: "CycloneDX", Version: "1.5", Revision: 1, Components: []cycloneComponent{},
		Metadata: cycloneMetadata{of.Created.UTC().Format(time.RFC3339), cycloneComponent{Type: "container", Ref: of.Digest, Name: of.Name, Version: of.Digest}},
	}
	for i, p := range list.Packages {
		out.Components = append(out.Components, cycloneComponent{Type: "library", Ref: fmt.Sprintf("package-%d", i+1), Name: p.Name, Version: p.Version, URL: p.URL(list.Distro)})
	}
	return out
}
