package mcpserver

import (
	"fmt"
	"slices"
	"sync"
)

// Limits of pictures that have not been shown yet. Overhead is counted too, so that tiny pictures
// are bounded as well.
const (
	// maxImages bounds the pictures of one call: they cost the agent tokens.
	maxImages    = 8
	pictureCost  = 16 << 10
	pictureShare = maxImages * (maxImage + pictureCost) // of a sandbox
	pictureTotal = 128 << 20                            // of all Tenants of a server
)

// pictures stores the pictures from code in the sandboxes of all Tenants of a server, oldest first,
// until a caller gets them. If their total is too large, the Tenant with the most loses its oldest,
// so that an agent that does not fetch its pictures does not displace those of another key.
type pictures struct {
	share, total int

	mu   sync.Mutex
	cost int
	kept []pendingPicture
}

func newPictures() *pictures { return &pictures{share: pictureShare, total: pictureTotal} }

// pendingPicture is a picture that no caller has got yet.
type pendingPicture struct {
	image
	sandbox *agentSandbox
	job     *job
}

// pictureUse is how much of the memory for pictures a sandbox or a Tenant uses.
type pictureUse struct {
	cost int
	gone bool // no more pictures will be shown
}

// jobPictures are the waiting pictures of a job.
type jobPictures struct {
	count, lost int
	gone        bool
}

// keep stores a picture, unless the job already has as many as one call shows.
func (p *pictures) keep(b *agentSandbox, j *job, i image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case b.pictureUse.gone || j.pictures.gone:
		return
	case j.pictures.count >= maxImages:
		j.pictures.lost++
		return
	}
	one := pendingPicture{i, b, j}
	p.kept = append(p.kept, one)
	p.count(one, 1)
	for b.pictureUse.cost > p.share {
		p.dropOldest(func(k pendingPicture) bool { return k.sandbox == b })
	}
	for p.cost > p.total {
		largest := b.tenant
		for _, k := range p.kept {
			if k.sandbox.tenant.pictureUse.cost > largest.pictureUse.cost {
				largest = k.sandbox.tenant
			}
		}
		p.dropOldest(func(k pendingPicture) bool { return k.sandbox.tenant == largest })
	}
}

// count counts a picture that was added, or with -1 removed. The caller holds p.mu, as for all
// methods below.
func (p *pictures) count(k pendingPicture, sign int) {
	cost := sign * (len(k.data) + pictureCost)
	p.cost += cost
	k.sandbox.pictureUse.cost += cost
	k.sandbox.tenant.pictureUse.cost += cost
	k.job.pictures.count += sign
}

// dropOldest drops the oldest of some pictures. There must be one.
func (p *pictures) dropOldest(of func(pendingPicture) bool) {
	at := slices.IndexFunc(p.kept, of)
	p.count(p.kept[at], -1)
	p.kept[at].job.pictures.lost++
	p.kept = slices.Delete(p.kept, at, at+1)
}

// drop drops some pictures and returns them.
func (p *pictures) drop(of func(pendingPicture) bool) (dropped []image) {
	p.kept = slices.DeleteFunc(p.kept, func(k pendingPicture) bool {
		if !of(k) {
			return false
		}
		p.count(k, -1)
		dropped = append(dropped, k.image)
		return true
	})
	return dropped
}

// take removes and returns the waiting pictures of a job, and the number of its dropped ones.
func (p *pictures) take(j *job) (images []image, lost int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost, j.pictures.lost = j.pictures.lost, 0
	return p.drop(func(k pendingPicture) bool { return k.job == j }), lost
}

// forgetJob drops the pictures of a job, and stores no more of it.
func (p *pictures) forgetJob(j *job) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j.pictures.gone = true
	p.drop(func(k pendingPicture) bool { return k.job == j })
}

// forgetSandbox does the same for a sandbox.
func (p *pictures) forgetSandbox(b *agentSandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b.pictureUse.gone = true
	p.drop(func(k pendingPicture) bool { return k.sandbox == b })
}

// showPictures adds the waiting pictures of a job to the result.
func (c *call) showPictures(b *agentSandbox, j *job) {
	images, lost := b.tenant.pictures.take(j)
	c.show(images...)
	if lost > 0 {
		c.printf("%s", droppedPictures(lost))
	}
}

func droppedPictures(pictures int) string {
	return fmt.Sprintf("[pictures omitted: %d]\n", pictures)
}
