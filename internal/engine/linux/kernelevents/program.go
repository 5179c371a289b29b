package kernelevents

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Layout of a record. A record of a fork or an exit ends after the header.
const (
	atKind, atNamespace, atPID, atParent, atUID, atCode, atTime = 0, 4, 8, 12, 16, 20, 24
	atArgsLength, atEnvLength, atNameLength                     = 32, 36, 40
	headerSize                                                  = 48
	atName, maxName                                             = headerSize, 256
	atArgs, maxArgs                                             = atName + maxName, 4096
	atEnv, maxEnv                                               = atArgs + maxArgs, 2048
	recordSize                                                  = atEnv + maxEnv
)

// Places on the stack of a program.
const (
	stackPointer   = -8
	stackLevel     = -16
	stackNamespace = -24
	stackPID       = -32
	stackOther     = -40
)

// tracepoint is a place in the kernel that a program observes.
type tracepoint struct {
	kind    Kind
	name    string
	subject int16 // which argument is the task
}

var tracepoints = []tracepoint{
	{Forked, "sched_process_fork", 1},
	{Executed, "sched_process_exec", 0},
	{Exited, "sched_process_exit", 0},
}

// builder assembles a program. Register 6 holds the arguments of the tracepoint, 7 the task, and 8
// the record once it is reserved.
type builder struct {
	asm.Instructions
	o offsets
}

func (b *builder) add(list ...asm.Instruction) { b.Instructions = append(b.Instructions, list...) }

// read copies size bytes of the kernel's memory to a place on the stack.
func (b *builder) read(to int16, size int32, from asm.Register, offset int16) {
	b.add(
		asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, int32(to)), asm.Mov.Imm(asm.R2, size),
		asm.Mov.Reg(asm.R3, from), asm.Add.Imm(asm.R3, int32(offset)), asm.FnProbeReadKernel.Call(),
	)
}

// follow loads the pointer in a field.
func (b *builder) follow(to, from asm.Register, offset int16) {
	b.read(stackPointer, 8, from, offset)
	b.add(asm.LoadMem(to, asm.RFP, stackPointer, asm.DWord))
}

// number makes a register the address of a process's entry in the namespace at the level on the
// stack. The register holds its struct pid.
func (b *builder) number(r asm.Register) {
	b.add(asm.LoadMem(asm.R1, asm.RFP, stackLevel, asm.Word), asm.Mul.Imm(asm.R1, int32(b.o.upidSize)), asm.Add.Reg(r, asm.R1))
}

// program assembles the program of a tracepoint. The programs only read: they neither delay nor
// refuse what they observe.
func (o offsets) program(t tracepoint, ring, watched *ebpf.Map) asm.Instructions {
	b := &builder{o: o}
	b.add(asm.Mov.Reg(asm.R6, asm.R1), asm.LoadMem(asm.R7, asm.R6, t.subject*8, asm.DWord))
	b.findProcess(t.kind)
	// Only processes in a watched namespace are reported.
	b.add(
		asm.LoadMapPtr(asm.R1, watched.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackNamespace), asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"), asm.Mov.Reg(asm.R9, asm.R0),
	)
	size := int32(headerSize)
	if t.kind == Executed {
		size = recordSize
	}
	b.add(
		asm.LoadMapPtr(asm.R1, ring.FD()), asm.Mov.Imm(asm.R2, size), asm.Mov.Imm(asm.R3, 0), asm.FnRingbufReserve.Call(),
		asm.JNE.Imm(asm.R0, 0, "reserved"),
		// The buffer is full. The event is counted instead.
		asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R9, asm.R1, asm.DWord), asm.Ja.Label("end"),
		asm.Mov.Reg(asm.R8, asm.R0).WithSymbol("reserved"),
		asm.StoreImm(asm.R8, atKind, int64(t.kind), asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, stackNamespace, asm.Word), asm.StoreMem(asm.R8, atNamespace, asm.R1, asm.Word),
		asm.LoadMem(asm.R1, asm.RFP, stackPID, asm.Word), asm.StoreMem(asm.R8, atPID, asm.R1, asm.Word),
		asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.R8, atTime, asm.R0, asm.DWord),
	)
	b.describe()
	if t.kind == Executed {
		b.describeProgram()
	}
	b.add(
		asm.Mov.Reg(asm.R1, asm.R8), asm.Mov.Imm(asm.R2, 0), asm.FnRingbufSubmit.Call(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return(),
	)
	return b.Instructions
}

// findProcess makes register 7 the first task of the process, and finds its PID and PID namespace.
// It leaves the program for a thread that is created, and for one that ends before others of its
// process.
func (b *builder) findProcess(kind Kind) {
	if kind == Exited {
		b.follow(asm.R9, asm.R7, b.o.signal)
		b.read(stackOther, 4, asm.R9, b.o.live)
		b.add(asm.LoadMem(asm.R1, asm.RFP, stackOther, asm.Word), asm.JNE.Imm(asm.R1, 0, "end"))
	}
	b.follow(asm.R9, asm.R7, b.o.groupLeader)
	if kind == Forked {
		b.add(asm.JNE.Reg(asm.R9, asm.R7, "end"))
	}
	b.add(asm.Mov.Reg(asm.R7, asm.R9))
	b.follow(asm.R9, asm.R7, b.o.threadPID)
	b.read(stackLevel, 4, asm.R9, b.o.level)
	b.number(asm.R9)
	b.read(stackPID, 4, asm.R9, b.o.numbers+b.o.nr)
	b.follow(asm.R9, asm.R9, b.o.numbers+b.o.upidNamespace)
	b.read(stackNamespace, 4, asm.R9, b.o.inum)
}

// describe adds the parent, the user and the exit status.
func (b *builder) describe() {
	b.add(asm.Mov.Imm(asm.R1, 0), asm.StoreMem(asm.R8, atParent, asm.R1, asm.Word))
	b.follow(asm.R9, asm.R7, b.o.realParent)
	b.follow(asm.R9, asm.R9, b.o.groupLeader)
	b.follow(asm.R9, asm.R9, b.o.threadPID)
	b.read(stackOther, 4, asm.R9, b.o.level)
	// The parent of the namespace's first process is in another one, and has no PID in this one.
	b.add(
		asm.LoadMem(asm.R1, asm.RFP, stackLevel, asm.Word), asm.LoadMem(asm.R2, asm.RFP, stackOther, asm.Word),
		asm.JNE.Reg(asm.R1, asm.R2, "noparent"),
	)
	b.number(asm.R9)
	b.read(stackOther, 4, asm.R9, b.o.numbers+b.o.nr)
	b.add(asm.LoadMem(asm.R1, asm.RFP, stackOther, asm.Word), asm.StoreMem(asm.R8, atParent, asm.R1, asm.Word))
	b.add(asm.Mov.Reg(asm.R9, asm.R7).WithSymbol("noparent"))
	b.follow(asm.R9, asm.R9, b.o.cred)
	b.read(stackOther, 4, asm.R9, b.o.uid)
	b.add(asm.LoadMem(asm.R1, asm.RFP, stackOther, asm.Word), asm.StoreMem(asm.R8, atUID, asm.R1, asm.Word))
	b.add(asm.LoadMem(asm.R9, asm.R6, 0, asm.DWord)) // the status is that of the last task
	b.read(stackOther, 4, asm.R9, b.o.exitCode)
	b.add(asm.LoadMem(asm.R1, asm.RFP, stackOther, asm.Word), asm.StoreMem(asm.R8, atCode, asm.R1, asm.Word))
}

// describeProgram adds the name that the caller gave, the arguments and the environment.
func (b *builder) describeProgram() {
	b.add(asm.LoadMem(asm.R9, asm.R6, 16, asm.DWord))
	b.follow(asm.R9, asm.R9, b.o.filename)
	b.add(
		asm.Mov.Reg(asm.R1, asm.R8), asm.Add.Imm(asm.R1, atName), asm.Mov.Imm(asm.R2, maxName), asm.Mov.Reg(asm.R3, asm.R9),
		asm.FnProbeReadKernelStr.Call(), asm.StoreMem(asm.R8, atNameLength, asm.R0, asm.Word),
	)
	b.add(asm.LoadMem(asm.R9, asm.R6, 0, asm.DWord))
	b.follow(asm.R9, asm.R9, b.o.mm)
	b.copyText("args", b.o.argStart, b.o.argEnd, atArgsLength, atArgs, maxArgs)
	b.copyText("env", b.o.envStart, b.o.envEnd, atEnvLength, atEnv, maxEnv)
}

// copyText copies a part of the new program's memory. Register 9 holds its mm_struct.
func (b *builder) copyText(name string, start, end, atLength, at int16, most int32) {
	b.read(stackPointer, 8, asm.R9, start)
	b.read(stackOther, 8, asm.R9, end)
	b.add(
		asm.LoadMem(asm.R3, asm.RFP, stackPointer, asm.DWord), asm.LoadMem(asm.R2, asm.RFP, stackOther, asm.DWord),
		asm.Sub.Reg(asm.R2, asm.R3), asm.StoreMem(asm.R8, atLength, asm.R2, asm.Word),
		asm.JLE.Imm(asm.R2, most, name), asm.Mov.Imm(asm.R2, most),
		asm.Mov.Reg(asm.R1, asm.R8).WithSymbol(name), asm.Add.Imm(asm.R1, int32(at)), asm.FnProbeReadUser.Call(),
	)
}
