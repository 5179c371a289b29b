package gateway

import (
	"encoding/json"
	"errors"
	"os"
	"time"

	"github.com/crannog/crannog/internal/egress/attachment"
	"github.com/crannog/crannog/internal/egress/certs"
	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/egress/proxy"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/ids"
)

// attach opens a sandbox's network. The attachment's descriptor and the flow file come with the
// request, in this order.
func (c *controller) attach(body json.RawMessage, files []*os.File) (_ any, err error) {
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close() // closing twice is harmless here
			}
		}
	}()
	var req attachBody
	if err := strict(body, &req); err != nil {
		return nil, badMessage(err)
	}
	if !ids.ValidSandbox(req.Sandbox) || len(files) != maxFiles {
		return nil, badMessage(errors.New("it needs a sandbox, an attachment's descriptor and a flow file"))
	}
	s := c.server
	if err := s.reserve(req.Sandbox); err != nil {
		return nil, err
	}
	b, reply, err := c.assemble(req, files[0], files[1])
	if err != nil {
		s.storeOrRelease(req.Sandbox, nil)
		return nil, err
	}
	b.adopt(c.peer)
	if !s.storeOrRelease(req.Sandbox, b) {
		b.close()
		return nil, errGone
	}
	s.working.Go(func() {
		<-b.link.Done()
		s.drop(b, "the sandbox has ended")
	})
	s.notify(Event{Sandbox: b.id, Kind: EventAttached})
	return reply, nil
}

// assemble creates the sandbox's network. If it fails, only the files remain.
func (c *controller) assemble(req attachBody, link, record *os.File) (_ *attachedSandbox, _ attachReply, err error) {
	var none attachReply
	p, _, err := policy.Compile(req.Policy...)
	if err != nil {
		return nil, none, err
	}
	authority, err := certs.New(req.Sandbox, time.Now)
	if err != nil {
		return nil, none, err
	}
	records, err := newRecorder(req.Sandbox, record, req.Seq)
	if err != nil {
		return nil, none, err
	}
	b := newAttachedSandbox(req.Sandbox, records, p.Digest())
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if b.handler, err = c.server.env.newHandler(proxy.Config{
		Packages: c.server.env.packages.of(b), Locked: req.Locked.Index(),
		Sandbox: b.id, Policy: p, CA: authority, Secrets: req.Secrets, Recorder: records, After: req.Seq, Asker: approver{b},
	}); err != nil {
		return nil, none, err
	}
	if req.Kind == "" {
		req.Kind = attachment.Packets
	}
	if b.link, err = attachment.Open(req.Kind, link, b.handler, attachment.Options{}); err != nil {
		return nil, none, fault.Wrap(err, fault.Invalid, "link", "the descriptor is not a network attachment")
	}
	return b, attachReply{Certificate: authority.Certificate(), Digest: p.Digest()}, nil
}

func (c *controller) update(body json.RawMessage) (any, error) {
	var req updateBody
	if err := strict(body, &req); err != nil {
		return nil, badMessage(err)
	}
	b, err := c.server.find(req.Sandbox)
	if err != nil {
		return nil, err
	}
	p, _, err := policy.Compile(req.Policy...)
	if err != nil {
		return nil, err
	}
	if err := b.update(p, req.Secrets, req.RunsProbe); err != nil {
		return nil, err
	}
	c.server.notify(Event{Sandbox: b.id, Kind: EventUpdated})
	return updateReply{Digest: p.Digest()}, nil
}

// detach ends a sandbox's network. It also succeeds if the sandbox is not attached, so that callers
// may retry.
func (c *controller) detach(body json.RawMessage) (any, error) {
	var req sandboxBody
	if err := strict(body, &req); err != nil {
		return nil, badMessage(err)
	}
	if b, err := c.server.find(req.Sandbox); err == nil {
		c.server.drop(b, "it was detached")
	}
	return struct{}{}, nil
}

// adopt makes the caller the receiver of these sandboxes' approval requests.
func (c *controller) adopt(body json.RawMessage) (any, error) {
	var req adoptBody
	if err := strict(body, &req); err != nil {
		return nil, badMessage(err)
	}
	var reply adoptReply
	for _, id := range req.Sandboxes {
		b, err := c.server.find(id)
		if err != nil {
			reply.Missing = append(reply.Missing, id)
			continue
		}
		b.adopt(c.peer)
		c.server.notify(Event{Sandbox: id, Kind: EventAdopted})
	}
	return reply, nil
}
