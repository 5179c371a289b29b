package e2b

import (
	"context"
	"net/http"

	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/volumes"
	"github.com/crannog/crannog/internal/state/volume"
)

// Volumes manages volumes and their files; volumes.Service implements it.
type Volumes interface {
	List(ctx context.Context, caller sandbox.Principal) ([]volumes.Info, error)
	Find(caller sandbox.Principal, ref string) (volume.Volume, error)
	Create(ctx context.Context, caller sandbox.Principal, req volumes.Request) (volume.Volume, error)
	Remove(ctx context.Context, caller sandbox.Principal, ref string) error
	// ByToken returns the owner of the volume to which a token gives access.
	ByToken(id, token string) (sandbox.Principal, error)
	Files(caller sandbox.Principal, ref string) (*volume.Files, error)
	Change(ctx context.Context, caller sandbox.Principal, what, ref string, do func(*volume.Files) error) error
}

func (a *api) volumeRoutes() {
	if a.Volumes == nil {
		return
	}
	a.handle("GET /volumes", a.listVolumes)
	a.handle("POST /volumes", a.createVolume)
	a.handle("GET /volumes/{id}", a.volumeInfo)
	a.handle("DELETE /volumes/{id}", a.removeVolume)
}

// volumeBody describes a volume. Lists have no token.
type volumeBody struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
	Token    string `json:"token,omitempty"`
}

func volumeBodyOf(v volume.Volume) volumeBody { return volumeBody{v.ID, v.Name, v.Token} }

func (a *api) listVolumes(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	all, err := a.Volumes.List(r.Context(), caller)
	if err != nil {
		return err
	}
	out := make([]volumeBody, 0, len(all))
	for _, v := range all {
		out = append(out, volumeBody{VolumeID: v.ID, Name: v.Name})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (a *api) createVolume(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	var in struct {
		Name string `json:"name"`
	}
	if err := decode(w, r, &in, false); err != nil {
		return err
	}
	v, err := a.Volumes.Create(r.Context(), caller, volumes.Request{Name: in.Name})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, volumeBodyOf(v))
	return nil
}

func (a *api) volumeInfo(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	v, err := a.Volumes.Find(caller, r.PathValue("id"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, volumeBodyOf(v))
	return nil
}

func (a *api) removeVolume(w http.ResponseWriter, r *http.Request, caller sandbox.Principal) error {
	if err := a.Volumes.Remove(r.Context(), caller, r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// volumeMountBody is a volume of a sandbox.
type volumeMountBody struct {
	Name string `json:"name"`
	Path string `json:"path"`
}

// volumeMounts lists the volumes and the shared directories of a sandbox.
func volumeMounts(s sandbox.Sandbox) []volumeMountBody {
	out := []volumeMountBody{}
	for _, m := range s.Volumes {
		out = append(out, volumeMountBody{m.Name, m.Target})
	}
	for _, m := range s.Mounts {
		if m.Name != "" {
			out = append(out, volumeMountBody{m.Name, m.Target})
		}
	}
	return out
}

// volumesOf converts the volumes of a create request. For compatibility with earlier versions, a
// name may also be that of a directory that the server's settings share.
func volumesOf(list []newVolume) (out []sandbox.VolumeMount, err error) {
	for _, v := range list {
		if v.Name == "" {
			return nil, fault.New(fault.Invalid, "mounts_invalid", "volumeMounts: a volume needs a name")
		}
		out = append(out, sandbox.VolumeMount{Name: v.Name, Target: v.Path, OrShared: true})
	}
	return out, nil
}
