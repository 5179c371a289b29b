package mcpserver

import (
	"fmt"
	"slices"
	"sync"
)

// Bounds of the pictures that have not been shown yet. What one costs besides
// its bytes is counted, so that tiny ones are bounded as well.
const (
	// maxImages bounds the pictures of one call, which an agent pays for.
	maxImages    = 8
	pictureCost  = 16 << 10
	pictureShare = maxImages * (maxImage + pictureCost) // of a sandbox
	pictureTotal = 128 << 20                            // of all desks of a server
)

// pictures are what code has shown in the sandboxes of all desks of a server,
// oldest first, until a caller is shown it. Where all of them are too much, the
// desk that has most loses its oldest: an agent that lets them pile up takes
// none from another key's.
type pictures struct {
	share, total int

	mu   sync.Mutex
	cost int
	kept []unseen
}

func newPictures() *pictures { return &pictures{share: pictureShare, total: pictureTotal} }

// unseen is a picture that waits.
type unseen struct {
	image
	box *box
	job *job
}

// heap is what a sandbox, or a desk, has among the pictures.
type heap struct {
	cost int
	gone bool // no more pictures will be shown
}

// wall is what of a job waits to be shown.
type wall struct {
	count, lost int
	gone        bool
}

// keep keeps a picture, unless as many of the job wait as one call shows.
func (p *pictures) keep(b *box, j *job, i image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case b.heap.gone || j.wall.gone:
		return
	case j.wall.count >= maxImages:
		j.wall.lost++
		return
	}
	one := unseen{i, b, j}
	p.kept = append(p.kept, one)
	p.count(one, 1)
	for b.heap.cost > p.share {
		p.lose(func(k unseen) bool { return k.box == b })
	}
	for p.cost > p.total {
		most := b.desk
		for _, k := range p.kept {
			if k.box.desk.heap.cost > most.heap.cost {
				most = k.box.desk
			}
		}
		p.lose(func(k unseen) bool { return k.box.desk == most })
	}
}

// count notes that a picture came, or with -1 that it went. p.mu must be held,
// as for what follows.
func (p *pictures) count(k unseen, sign int) {
	cost := sign * (len(k.data) + pictureCost)
	p.cost += cost
	k.box.heap.cost += cost
	k.box.desk.heap.cost += cost
	k.job.wall.count += sign
}

// lose drops the oldest of some pictures, which must have one.
func (p *pictures) lose(of func(unseen) bool) {
	at := slices.IndexFunc(p.kept, of)
	p.count(p.kept[at], -1)
	p.kept[at].job.wall.lost++
	p.kept = slices.Delete(p.kept, at, at+1)
}

// drop drops some pictures and returns them.
func (p *pictures) drop(of func(unseen) bool) (dropped []image) {
	p.kept = slices.DeleteFunc(p.kept, func(k unseen) bool {
		if !of(k) {
			return false
		}
		p.count(k, -1)
		dropped = append(dropped, k.image)
		return true
	})
	return dropped
}

// take returns what waits of a job, which is then on its way to a caller and
// not kept any more, and how many pictures were not kept for it.
func (p *pictures) take(j *job) (images []image, lost int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost, j.wall.lost = j.wall.lost, 0
	return p.drop(func(k unseen) bool { return k.job == j }), lost
}

// forgetJob drops what waits of a job, and keeps no more of it.
func (p *pictures) forgetJob(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.wall.gone = true
	p.drop(func(k unseen) bool { return k.job == j })
}

// forgetBox is the same of a sandbox.
func (p *pictures) forgetBox(b *box) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.heap.gone = true
	p.drop(func(k unseen) bool { return k.box == b })
}

// showOf shows the pictures of a job that have not been shown yet.
func (c *call) showOf(b *box, j *job) {
	images, lost := b.desk.pictures.take(j)
	c.show(images...)
	if lost > 0 {
		c.say("%s", notKept(lost))
	}
}

func notKept(pictures int) string {
	return fmt.Sprintf("[pictures that were not kept: %d]\n", pictures)
}
