package rootimage

import (
	"context"
	"os"

	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/filetree/fileowners"
)

// WriteView creates an image of a view of the host, as Write does. A crash of the host leaves it
// complete, or not there.
func WriteView(ctx context.Context, name string, view engine.HostView) error {
	var table fileowners.Table
	if view.Owners != "" {
		var err error
		if table, err = fileowners.Read(view.Owners); err != nil {
			return err
		}
	}
	trees := []Tree{{Source: view.Dir, Target: "/", Owner: FromTable(table)}}
	for _, b := range view.Binds {
		trees[0].Without = append(trees[0].Without, b.Target)
		trees = append(trees, Tree{Source: b.Source, Target: b.Target, Owner: AllOf(0, 0)})
	}
	return write(ctx, name, trees, (*os.File).Sync)
}
