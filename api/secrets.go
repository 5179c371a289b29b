package api

import "time"

// Secret describes a stored secret. No caller can read its value.
type Secret struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Version   int64             `json:"version" doc:"1 for a new secret; each rotation adds 1."`
	Metadata  map[string]string `json:"metadata"`
	CreatedAt time.Time         `json:"created_at"`
	UpdatedAt time.Time         `json:"updated_at"`
}

// CreateSecret is the body of POST /v1/secrets.
type CreateSecret struct {
	Name     string            `json:"name" doc:"Up to 64 letters, digits, _ and -; unique among the caller's, whatever the case of its letters."`
	Value    string            `json:"value" doc:"At least 8 bytes. It is never shown again."`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// RotateSecret is the body of POST /v1/secrets/{id}/rotate.
type RotateSecret struct {
	Value    string            `json:"value" doc:"The new value. Earlier values are still redacted for a while."`
	Metadata map[string]string `json:"metadata,omitempty" doc:"If present, replaces the secret's."`
}

// SecretList is the answer of GET /v1/secrets.
type SecretList struct {
	Secrets []Secret `json:"secrets"`
}

// RotatedKey is the answer of POST /v1/secrets/rotate-key.
type RotatedKey struct {
	Moved int `json:"moved" doc:"Number of values that are now encrypted with the new key."`
}
