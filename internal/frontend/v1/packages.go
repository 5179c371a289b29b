package v1

import (
	"context"

	"github.com/crannog/crannog/api"
	"github.com/crannog/crannog/internal/packages/store"
	"github.com/crannog/crannog/internal/sandbox"
)

// PackageCache lists and removes the content of the package cache.
type PackageCache interface {
	List() ([]store.Listed, error)
	Prune(ctx context.Context, caller sandbox.Principal, maxBytes int64) (store.Pruned, error)
	Verify(ctx context.Context, caller sandbox.Principal) (store.Verified, error)
	Budget() int64
}

// packageHandlers serves the package cache, to local callers only: its content shows what other
// users' sandboxes install. The web console passes on the requests of admins only.
type packageHandlers struct{ cache PackageCache }

func (h *packageHandlers) register(r *registry) {
	if h.cache == nil {
		return
	}
	register(r, op("package-cache-list", "GET", "/package-cache", "List what the package cache has"), h.list)
	register(r, op("package-cache-prune", "POST", "/package-cache/prune", "Remove data of the package cache"), h.prune)
	register(r, op("package-cache-verify", "POST", "/package-cache/verify", "Compare the package cache with its digests"), h.verify)
}

type packageCacheOutput struct{ Body api.PackageCache }

func (h *packageHandlers) list(_ context.Context, caller sandbox.Principal, _ *struct{}) (*packageCacheOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	all, err := h.cache.List()
	if err != nil {
		return nil, err
	}
	out := &packageCacheOutput{api.PackageCache{Packages: make([]api.CachedPackage, 0, len(all)), Budget: h.cache.Budget()}}
	for _, e := range all {
		out.Body.Packages = append(out.Body.Packages, api.CachedPackage{
			URL: e.Key, Ecosystem: string(e.Ecosystem), Name: e.Name, Version: e.Version, SHA256: e.SHA256, Bytes: e.Size,
			Integrity: e.Integrity, FetchedAt: e.Fetched, UsedAt: e.Used,
		})
	}
	return out, nil
}

type prunePackagesInput struct{ Body api.PrunePackages }

type prunedPackagesOutput struct{ Body api.PrunedPackages }

func (h *packageHandlers) prune(ctx context.Context, caller sandbox.Principal, in *prunePackagesInput) (*prunedPackagesOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	done, err := h.cache.Prune(ctx, caller, in.Body.Keep)
	if err != nil {
		return nil, err
	}
	return &prunedPackagesOutput{api.PrunedPackages{Removed: done.Entries, FreedBytes: done.Bytes}}, nil
}

type verifiedPackagesOutput struct{ Body api.VerifiedPackages }

func (h *packageHandlers) verify(ctx context.Context, caller sandbox.Principal, _ *struct{}) (*verifiedPackagesOutput, error) {
	if err := localOnly(caller); err != nil {
		return nil, err
	}
	done, err := h.cache.Verify(ctx, caller)
	if err != nil {
		return nil, err
	}
	return &verifiedPackagesOutput{api.VerifiedPackages{Verified: done.Contents, Bytes: done.Bytes, Damaged: append([]string{}, done.Damaged...)}}, nil
}
