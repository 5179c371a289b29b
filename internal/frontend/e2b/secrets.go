package e2b

import (
	"context"
	"encoding/base64"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crannog/crannog/internal/egress/secrets"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// Secrets stores secrets; secrets.Vault implements it.
type Secrets interface {
	Set(ctx context.Context, caller secrets.Caller, name string, value []byte, metadata map[string]string) (secrets.Info, error)
	Rotate(ctx context.Context, caller secrets.Caller, ref string, value []byte, metadata map[string]string) (secrets.Info, error)
	Remove(ctx context.Context, caller secrets.Caller, ref string) (secrets.Info, error)
	Find(ctx context.Context, caller secrets.Caller, ref string) (secrets.Info, error)
	List(ctx context.Context, caller secrets.Caller) ([]secrets.Info, error)
}

func (a *api) secretRoutes() {
	if a.Secrets == nil {
		return
	}
	a.handle("GET /secrets", a.listSecrets)
	a.handle("POST /secrets", a.createSecret)
	a.handle("GET /secrets/{id}", a.secretInfo)
	a.handle("POST /secrets/{id}", a.updateSecret)
	a.handle("DELETE /secrets/{id}", a.destroySecret)
}

// newSecret is the body of create and, without a name, of update.
type newSecret struct {
	Name     string            `json:"name"`
	Value    *string           `json:"value"`
	Metadata map[string]string `json:"metadata"`
}

// secretBody describes a secret. No response contains the value of a secret.
type secretBody struct {
	SecretID       string            `json:"secretID"`
	Name           string            `json:"name"`
	CurrentVersion int64             `json:"currentVersion"`
	Metadata       map[string]string `json:"metadata"`
	CreatedAt      time.Time         `json:"createdAt"`
	UpdatedAt      time.Time         `json:"updatedAt"`
}

func secretBodyOf(info secrets.Info) secretBody {
	out := secretBody{
		SecretID: info.ID, Name: info.Name, CurrentVersion: info.Version, Metadata: info.Metadata,
		CreatedAt: info.Created, UpdatedAt: info.Updated,
	}
	if out.Metadata == nil {
		out.Metadata = map[string]string{}
	}
	return out
}

func secretOwner(caller sandbox.Principal) secrets.Caller { return secrets.Caller{Owner: caller.KeyID} }

func readSecret(w http.ResponseWriter, r *http.Request) (newSecret, []byte, error) {
	var in newSecret
	if err := decode(w, r, &in, false); err != nil {
		return newSecret{}, nil, err
	}
	if in.Value == nil {
		return newSecret{}, nil, fault.New(fault.Invalid, "field_missing", `the field "value" is missing`)
	}
	// The decoder replaces invalid UTF-8 by U+FFFD, which would change the secret.
	if strings.ContainsRune(*in.Value, '\uFFFD') {
		return newSecret{}, nil, fault.New(fault.Invalid, "secret_not_text", "a secret's value must be UTF-8 text")
	}
	return in, []byte(*in.Value), nil
}

func (a *api) createSecret(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	in, value, err := readSecret(w, r)
	if err != nil {
		return err
	}
	defer clear(value)
	info, err := a.Secrets.Set(r.Context(), secretOwner(caller), in.Name, value, in.Metadata)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, secretBodyOf(info))
	return nil
}

func (a *api) updateSecret(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	in, value, err := readSecret(w, r)
	if err != nil {
		return err
	}
	defer clear(value)
	info, err := a.Secrets.Rotate(r.Context(), secretOwner(caller), r.PathValue("id"), value, in.Metadata)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, secretBodyOf(info))
	return nil
}

func (a *api) secretInfo(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	info, err := a.Secrets.Find(r.Context(), secretOwner(caller), r.PathValue("id"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, secretBodyOf(info))
	return nil
}

func (a *api) destroySecret(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	if _, err := a.Secrets.Remove(r.Context(), secretOwner(caller), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *api) listSecrets(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	query, err := queryOf(r.URL.RawQuery)
	if err != nil {
		return err
	}
	limit, err := parseLimit(query.Get("limit"), maxPage, maxPage)
	if err != nil {
		return err
	}
	list, err := a.Secrets.List(r.Context(), secretOwner(caller))
	if err != nil {
		return err
	}
	if s := query.Get("nextToken"); s != "" {
		after, err := parseSecretToken(s)
		if err != nil {
			return err
		}
		list = slices.DeleteFunc(list, func(info secrets.Info) bool { return secretPosition(info) <= after })
	}
	if len(list) > limit {
		list = list[:limit]
		w.Header().Set("X-Next-Token", base64.RawURLEncoding.EncodeToString([]byte(secretPosition(list[limit-1]))))
	}
	rows := make([]secretBody, 0, len(list))
	for _, info := range list {
		rows = append(rows, secretBodyOf(info))
	}
	writeJSON(w, http.StatusOK, rows)
	return nil
}

// sortableTime is a time format whose texts sort by time.
const sortableTime = "2006-01-02T15:04:05.000000000Z"

// secretPosition returns a secret's position in the list. The next page is correct even if the
// secret has been removed since.
func secretPosition(info secrets.Info) string {
	return info.Created.UTC().Format(sortableTime) + " " + info.ID
}

func parseSecretToken(s string) (string, error) {
	plain, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(s) > maxToken {
		return "", invalidToken()
	}
	at, id, ok := strings.Cut(string(plain), " ")
	if _, err := time.Parse(sortableTime, at); err != nil || !ok || !strings.HasPrefix(id, secrets.IDPrefix) {
		return "", invalidToken()
	}
	return string(plain), nil
}
