package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"os"

	"github.com/crannog/crannog/internal/egress/policy"
	"github.com/crannog/crannog/internal/engine"
	"github.com/crannog/crannog/internal/fault"
	"github.com/crannog/crannog/internal/guest"
	"github.com/crannog/crannog/internal/sandbox"
	"github.com/crannog/crannog/internal/sandbox/rootfs"
	"github.com/crannog/crannog/internal/sandbox/savedstate"
	"github.com/crannog/crannog/internal/sandbox/steps"
)

// boot is one boot of an instance: its inputs, and the resources that its steps open. A creation,
// the warm pool, a resumption and a replacement all use its steps, between steps of their own.
type boot struct {
	s      *Service
	row    sandbox.Row
	policy *policy.Policy
	spec   engine.Spec
	config guest.Config
	from   source
	// launch makes the engine start the instance.
	launch func(ctx context.Context) error

	attachment *sandbox.Attachment // nil is no network
	env        map[string]string   // variables of the network
	state      *savedstate.Opened
	// detached replaces the caller's context once the old instance has lost its network, and stop
	// ends it.
	detached context.Context
	stop     func()
}

// newBoot prepares the boot of an instance from a source.
func (s *Service) newBoot(r sandbox.Row, p *policy.Policy, spec engine.Spec, config guest.Config, from source) *boot {
	b := &boot{s: s, row: r, policy: p, spec: spec, config: config, from: from}
	b.launch = b.start
	return b
}

// Names of the steps of each boot.
const (
	stepFiles   = "find the host files to mount"
	stepVolumes = "attach the volumes"
	stepState   = "open the saved state"
	stepPolicy  = "resolve the secrets of the policy"
	stepNetwork = "attach the network"
	stepEvents  = "open the file for events"
	stepStart   = "start the instance"
	stepServe   = "start the template's program"
	stepClose   = "close the saved state"
)

// steps returns the steps of a boot. Steps that can fail early come before any change. Undoing the
// steps leaves nothing of the instance. The steps of a replacement are not undone, because the old
// instance may still run.
func (b *boot) steps() []steps.Step {
	list := []steps.Step{
		{Name: stepFiles, Do: b.showFiles},
		{Name: stepVolumes, Do: b.attachVolumes},
		{Name: stepState, Do: b.openState, Finally: b.dropState},
		{Name: stepPolicy, Do: b.resolve, Undo: b.cut},
		{Name: stepNetwork, Do: b.attach, Undo: b.detach, Finally: b.closeNetwork},
		{Name: stepEvents, Do: b.openEvents, Finally: b.closeEvents},
		{Name: stepStart, Do: b.startChecked, Undo: b.remove},
		{Name: stepServe, Do: b.serve},
		{Name: stepClose, Do: func(context.Context) error { return b.state.Close() }},
	}
	if b.from.replace {
		for i := range list {
			list[i].Undo = nil
		}
	}
	return list
}

func (b *boot) showFiles(ctx context.Context) (err error) {
	copies := b.s.data.workspaces.Copies()
	if b.spec.Workspace, err = rootfs.Workspace(ctx, copies, b.row, b.policy, b.from.again); err != nil {
		return err
	}
	if b.spec.Mounts, err = rootfs.Mounts(ctx, copies, b.row, b.policy, b.spec.Mounts, b.from.again); err != nil {
		return err
	}
	b.spec.StandIns, err = b.s.states.StandIns(b.from.Source)
	return err
}

func (b *boot) openState(ctx context.Context) (err error) {
	if b.state, err = b.s.states.Open(ctx, b.row.Engine, b.spec, b.from.Source); err != nil {
		return err
	}
	if b.state.Dir == "" {
		b.spec.StandIns = nil // no memory is restored
	}
	return nil
}

// dropState closes the state of a boot that failed.
func (b *boot) dropState(error) {
	if err := b.state.Close(); err != nil {
		b.s.log.Warn("saved state not closed", "sandbox", b.row.ID, "err", err)
	}
}

func (b *boot) resolve(ctx context.Context) (err error) {
	b.attachment, err = b.s.access.Plan(ctx, b.row, b.policy)
	return err
}

// cut closes the streams into the sandbox. It retains the redactor of a new sandbox, whose events
// have not been read yet.
func (b *boot) cut(context.Context) error {
	if !b.from.again {
		b.s.intake.Retain(b.row.ID)
	}
	b.s.untrack(b.row.ID)
	return nil
}

func (b *boot) attach(ctx context.Context) error {
	if b.from.replace && b.attachment != nil {
		// A network attachment has one end: the new instance takes over that of the old one. The
		// old instance has no network from here on, so the replacement must not stop if the caller
		// goes away.
		ctx, b.stop = unlessRemoved(ctx)
		b.detached = ctx
		if err := b.s.detach(ctx, b.row); err != nil {
			return err
		}
	}
	kind := b.attachmentKind()
	if b.attachment != nil && kind.MadeByEngine() {
		b.spec.Egress = engine.Egress{Kind: kind, Attach: b.attachEnd}
		return nil
	}
	if b.attachment != nil && kind != engine.EgressPackets {
		a := *b.attachment
		a.Kind = kind
		b.attachment = &a
	}
	link, err := b.s.access.Attach(ctx, b.attachment)
	if err != nil || link.End == nil {
		return err
	}
	b.spec.Egress = engine.Egress{Kind: kind, End: link.End}
	b.connect(link)
	return nil
}

// attachmentKind returns how the engine connects the instance to the gateway.
func (b *boot) attachmentKind() engine.EgressKind {
	return b.s.engines.info(b.row.Engine).Attachment()
}

// attachEnd attaches a network whose gateway end the engine has created, and returns the
// configuration of a guest that uses it.
func (b *boot) attachEnd(ctx context.Context, end *os.File) ([]byte, error) {
	a := *b.attachment
	a.Kind, a.End = b.attachmentKind(), end
	link, err := b.s.access.Attach(ctx, &a)
	if err != nil {
		return nil, err
	}
	b.connect(link)
	return json.Marshal(b.config)
}

// connect adds the files and variables that programs inside need to use the network.
func (b *boot) connect(link sandbox.Link) {
	b.env = link.Env
	b.config.Files = append(b.config.Files, link.Files...)
	rootfs.AddEnv(b.config.Env, link.Env)
}

func (b *boot) detach(ctx context.Context) error { return b.s.detach(ctx, b.row) }

// closeNetwork closes the descriptor of the sandbox's end of the network in this process.
func (b *boot) closeNetwork(error) {
	closeFile(b.spec.Egress.End)
	if b.stop != nil {
		b.stop()
	}
}

func (b *boot) openEvents(context.Context) (err error) {
	b.spec.Events, err = b.s.intake.Open(b.row)
	return err
}

func (b *boot) closeEvents(error) { closeFile(b.spec.Events) }

// closeFile closes a descriptor that this process only passes on.
func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}

// start makes the engine start the instance. The guest makes all checks before it is ready.
func (b *boot) start(ctx context.Context) (err error) {
	if b.detached != nil {
		ctx = b.detached
	}
	limit, dir := bootTimeout, b.state.Dir
	if b.state.Archive != nil {
		b.spec.Boot.Files, b.config.Archive, limit = b.state.Archive, true, archiveTimeout
	}
	if b.state.Archive != nil || dir != "" {
		b.config.Renew = b.from.renew
	}
	if b.spec.Boot.Config, err = json.Marshal(b.config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit,
		fault.Newf(fault.Timeout, "create_timeout", "the sandbox did not boot within %s", limit))
	defer cancel()
	if err := b.runOn(ctx, dir); err != nil {
		err = rootfs.BootError(err)
		if cause := context.Cause(ctx); cause != nil {
			err = errors.Join(canceled(cause), err)
		}
		return err
	}
	return nil
}

// startChecked starts the instance and checks that its limits hold.
func (b *boot) startChecked(ctx context.Context) error {
	if err := b.launch(ctx); err != nil {
		return err
	}
	if b.detached != nil {
		ctx = b.detached
	}
	e, err := b.s.engines.Of(b.row.Engine)
	if err != nil {
		return err
	}
	err = rootfs.CheckBounds(ctx, e, b.row)
	if err != nil && b.from.replace {
		// The old instance has ended, and the new one must not continue.
		err = fault.Wrap(err, fault.KindOf(err), codeReplaceFailed, fault.PublicText(err))
	}
	return err
}

func (b *boot) remove(ctx context.Context) error { return b.s.removeInstance(ctx, b.row.ID) }

// sequenceError returns the error for the caller of a failed sequence: the reason why the context
// ended, or the error of the step.
func sequenceError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return canceled(cause)
	}
	return err
}
