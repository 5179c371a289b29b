package v1

import (
	"cmp"
	"context"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/state/key"
)

// localOnly stops a key's owner from what only the machine's user may do:
// keys make keys, and pruning touches everybody's records.
func localOnly(who sandbox.Principal) error {
	if who.Local {
		return nil
	}
	return fault.New(fault.Denied, "local_only", "only a caller on the server's own machine may do this").
		WithHint("run the command there, as the user who runs the server")
}

type pruneOutput struct{ Body api.Pruned }

func (s *server) prune(ctx context.Context, who sandbox.Principal, _ *struct{}) (*pruneOutput, error) {
	if err := localOnly(who); err != nil {
		return nil, err
	}
	gone, err := s.Pruner.Prune(ctx, who)
	if err != nil {
		return nil, err
	}
	out := &pruneOutput{api.Pruned{Removed: make([]string, 0, len(gone.Sandboxes)), FreedBytes: gone.Freed}}
	for _, sb := range gone.Sandboxes {
		out.Body.Removed = append(out.Body.Removed, sb.ID)
	}
	return out, nil
}

type keysOutput struct{ Body api.KeyList }

func (s *server) listKeys(ctx context.Context, who sandbox.Principal, _ *struct{}) (*keysOutput, error) {
	if err := localOnly(who); err != nil {
		return nil, err
	}
	keys, err := s.Keys.List(ctx)
	if err != nil {
		return nil, err
	}
	out := &keysOutput{api.KeyList{Keys: make([]api.Key, 0, len(keys))}}
	for _, k := range keys {
		out.Body.Keys = append(out.Body.Keys, toKey(k))
	}
	return out, nil
}

type createKeyInput struct{ Body api.CreateKey }

type createKeyOutput struct{ Body api.NewKey }

func (s *server) createKey(ctx context.Context, who sandbox.Principal, in *createKeyInput) (*createKeyOutput, error) {
	if err := localOnly(who); err != nil {
		return nil, err
	}
	secret, k, err := s.Keys.CreateFor(ctx, in.Body.Name, key.Opens(cmp.Or(in.Body.Opens, string(key.API))))
	if err != nil {
		return nil, err
	}
	return &createKeyOutput{api.NewKey{Key: toKey(k), Secret: secret}}, nil
}

func (s *server) revokeKey(ctx context.Context, who sandbox.Principal, in *Ref) (*struct{}, error) {
	if err := localOnly(who); err != nil {
		return nil, err
	}
	_, err := s.Keys.Revoke(ctx, in.ID)
	return nil, err
}

type versionOutput struct{ Body api.Version }

func (s *server) version(context.Context, sandbox.Principal, *struct{}) (*versionOutput, error) {
	return &versionOutput{api.Version{Version: s.Version, API: "v1", Domain: s.Domain}}, nil
}
