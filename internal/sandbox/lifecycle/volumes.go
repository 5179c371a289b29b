package lifecycle

import (
	"context"
	"slices"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
)

// resolveVolumes looks up the volumes of a request by name. If there is no volume of that name, and
// OrShared is set, it mounts the shared directory of that name instead.
func (pl *planner) resolveVolumes(who sandbox.Principal, req sandbox.CreateRequest) (sandbox.CreateRequest, error) {
	if len(req.Volumes) > sandbox.MaxMounts {
		return req, fault.Newf(fault.Invalid, "mounts_invalid", "a sandbox can have at most %d volumes", sandbox.MaxMounts)
	}
	requested := req.Volumes
	req.Volumes, req.Mounts = nil, slices.Clone(req.Mounts)
	for _, m := range requested {
		id, err := pl.findVolume(who, m.Name)
		if _, shared := pl.settings.Mounts[m.Name]; shared && m.OrShared && fault.KindOf(err) == fault.NotFound {
			req.Mounts = append(req.Mounts, sandbox.Mount{Name: m.Name, Target: m.Target, ReadOnly: m.ReadOnly})
			continue
		}
		if err != nil {
			return req, err
		}
		for _, o := range req.Volumes {
			if o.ID == id {
				return req, fault.Newf(fault.Invalid, "mounts_invalid", "the volume %.100q is named twice", m.Name)
			}
		}
		req.Volumes = append(req.Volumes, sandbox.VolumeMount{ID: id, Name: m.Name, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return req, nil
}

func (pl *planner) findVolume(who sandbox.Principal, name string) (string, error) {
	if pl.volumes == nil {
		return "", fault.Newf(fault.NotFound, "volume_not_found", "there is no volume %.100q", name)
	}
	return pl.volumes.Resolve(who, name)
}

// attachVolumes makes the files of the sandbox's volumes accessible. From now on, the
// sandbox's row prevents the removal of its volumes. A volume that was removed earlier is an error.
func (b *boot) attachVolumes(context.Context) error {
	b.spec.Volumes = nil
	for _, m := range b.row.Base.Volumes {
		dir, err := b.s.planner.attach(m)
		if err != nil {
			return err
		}
		b.spec.Volumes = append(b.spec.Volumes, engine.Volume{Source: dir, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return nil
}

func (pl *planner) attach(m sandbox.VolumeMount) (string, error) {
	if pl.volumes == nil {
		return "", fault.Newf(fault.NotFound, "volume_not_found", "there is no volume %.100q", m.Name)
	}
	dir, err := pl.volumes.Attach(m.ID)
	if fault.KindOf(err) == fault.NotFound {
		return "", fault.Wrap(err, fault.NotFound, "volume_not_found", "the volume "+m.Name+" of the sandbox was removed").
			WithHint("its files cannot be restored; a sandbox without the volume can start from a template")
	}
	return dir, err
}
