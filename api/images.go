package api

import "time"

// Image is an OCI image on the server's machine.
type Image struct {
	Name     string       `json:"name"`
	Digest   string       `json:"digest" doc:"Of its manifest."`
	Resolved string       `json:"resolved,omitempty" doc:"What its name led to when it was pulled: the image, or an index of several platforms."`
	Source   string       `json:"source" doc:"The registry that it came from, or file."`
	Platform string       `json:"platform,omitempty"`
	AddedAt  time.Time    `json:"added_at"`
	MadeAt   *time.Time   `json:"made_at,omitempty" doc:"When it was built, if it says so."`
	Bytes    int64        `json:"size_bytes" doc:"Of its layers, as they are transferred."`
	Unpacked int64        `json:"unpacked_bytes,omitempty" doc:"Of its files, if it is unpacked."`
	LeftOut  int64        `json:"left_out,omitempty" doc:"How many devices and other entries sandboxes are not shown."`
	Config   *ImageConfig `json:"config,omitempty" doc:"Absent in lists."`
	Layers   []ImageLayer `json:"layers,omitempty" doc:"Absent in lists."`
	Feature  string       `json:"feature,omitempty" doc:"The devcontainer-feature.json of a feature of development containers, which is no image with programs. Absent in lists."`
}

// ImageConfig is the configuration with which an image's programs are started.
type ImageConfig struct {
	User       string            `json:"user,omitempty"`
	Env        []string          `json:"env,omitempty"`
	WorkingDir string            `json:"working_dir,omitempty"`
	Entrypoint []string          `json:"entrypoint,omitempty"`
	Cmd        []string          `json:"cmd,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
}

// ImageLayer is one layer of an image.
type ImageLayer struct {
	Digest string `json:"digest"`
	Bytes  int64  `json:"size_bytes"`
	Type   string `json:"media_type"`
}

// ImageList is the answer of GET /v1/images.
type ImageList struct {
	Images []Image `json:"images"`
}

// PullImage is the body of POST /v1/images/pull.
type PullImage struct {
	Image    string `json:"image" maxLength:"512" doc:"A reference, such as python:3.12-slim or ghcr.io/org/app@sha256:..."`
	Platform string `json:"platform,omitempty" maxLength:"64" doc:"Such as linux/arm64; that of the server's machine if absent."`
}

// PushImage is the body of POST /v1/images/push.
type PushImage struct {
	Image string `json:"image" maxLength:"512" doc:"An image of the machine, by its name or the beginning of its digest."`
	To    string `json:"to,omitempty" maxLength:"512" doc:"The reference to push it to; its own name if absent."`
}

// AttachToImage is the body of POST /v1/images/attach.
type AttachToImage struct {
	Image string `json:"image" maxLength:"512" doc:"An image of the machine, by its name or the beginning of its digest."`
	To    string `json:"to,omitempty" maxLength:"512" doc:"The reference whose repository has the image; its own name if absent."`
	Path  string `json:"path" maxLength:"4096" doc:"A file on the server's machine, of at most 16 MiB."`
	Type  string `json:"type" maxLength:"255" doc:"Its media type, such as application/spdx+json."`
}

// AttachedFile is the answer of POST /v1/images/attach.
type AttachedFile struct {
	Digest string `json:"digest" doc:"Of the manifest of the file, which has the image as its subject."`
}

// AttachedFiles is the answer of GET /v1/images/attached.
type AttachedFiles struct {
	Files []ListedFile `json:"files"`
}

// ListedFile is a file that a registry lists as attached to an image.
type ListedFile struct {
	Digest  string `json:"digest" doc:"Of the manifest of the file."`
	Type    string `json:"type,omitempty" doc:"Its media type."`
	Subject string `json:"subject" doc:"Digest of the image, or of the index from which it was chosen."`
}

// ImportImage is the body of POST /v1/images/import.
type ImportImage struct {
	Path     string `json:"path" maxLength:"4096" doc:"An OCI layout, as a directory or a tar, or what docker save writes, on the server's machine."`
	Name     string `json:"name,omitempty" maxLength:"512" doc:"The name of the image; that in the archive if absent."`
	Platform string `json:"platform,omitempty" maxLength:"64"`
}

// ImageEvent is one line of the answers of pull, push and import: progress, and at the
// end either the images or an error.
type ImageEvent struct {
	Stage   string   `json:"stage,omitempty" enum:"pull,unpack,push"`
	Digest  string   `json:"digest,omitempty" doc:"Of the layer, while it is pulled."`
	Done    int64    `json:"done_bytes,omitempty"`
	Total   int64    `json:"total_bytes,omitempty"`
	Present bool     `json:"present,omitempty" doc:"The machine had the layer already."`
	Images  []Image  `json:"images,omitempty"`
	Finish  bool     `json:"finished,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
}

// RemovedImages is the answer of DELETE /v1/images.
type RemovedImages struct {
	Removed []string `json:"removed" doc:"Names that are gone. What a sandbox needs of them stays until it has ended."`
}

// PrunedImages is the answer of POST /v1/images/prune.
type PrunedImages struct {
	Blobs      int   `json:"blobs"`
	Trees      int   `json:"trees"`
	FreedBytes int64 `json:"freed_bytes"`
}
