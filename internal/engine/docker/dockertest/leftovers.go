package dockertest

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/moby/moby/client"
)

// CountObjects counts the daemon's containers, volumes and networks of a state directory. Images
// are not counted, because they stay for later sandboxes.
func (d *Daemon) CountObjects(ctx context.Context, state string) (map[string]int, error) {
	counts := map[string]int{"containers": 0, "volumes": 0, "networks": 0}
	owner, err := os.ReadFile(filepath.Join(state, "docker/owner"))
	if os.IsNotExist(err) {
		return counts, nil // nothing was created yet
	}
	if err != nil {
		return nil, err
	}
	c, err := d.Client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	byOwner := client.Filters{}.Add("label", "dev.crannog.owner="+strings.TrimSpace(string(owner)))
	containers, err := c.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: byOwner})
	if err != nil {
		return nil, err
	}
	volumes, err := c.VolumeList(ctx, client.VolumeListOptions{Filters: byOwner})
	if err != nil {
		return nil, err
	}
	networks, err := c.NetworkList(ctx, client.NetworkListOptions{Filters: byOwner})
	if err != nil {
		return nil, err
	}
	counts["containers"], counts["volumes"], counts["networks"] = len(containers.Items), len(volumes.Items), len(networks.Items)
	return counts, nil
}
