// Package guestboot owns what an engine and the guest agree on before either runs: the ports that
// the guest serves, the line by which it reports that it is ready, and the descriptors and the
// system call that an engine may provide.
package guestboot

// Port is the port on the sandbox's loopback where the guest serves the data plane. InterpreterPort
// is where it serves the code interpreter. RelayPort is where it connects streams from an engine to
// ports inside, with the protocol of package relay, for engines whose own way to dial loses bytes.
const (
	Port            = 49983
	InterpreterPort = 49999
	RelayPort       = 49982
)

// Ports lists the ports on which the guest listens.
func Ports() []int { return []int{Port, InterpreterPort, RelayPort} }

// Ready is the line that the guest prints on its standard output when it listens. After it the
// guest closes its standard output and error.
const Ready = "ready"

// ChannelFlag is the guest's argument that announces a channel of streams from the engine: the
// guest reads descriptor ChannelFD and writes the one after it.
const (
	ChannelFlag = "--channel"
	ChannelFD   = 3
)

// ListenerFlag is the guest's argument that announces a listening Unix socket from the engine at
// descriptor ChannelFD, for engines whose sandboxes share the host's kernel: each connection to it
// is a stream, which loses no bytes.
const ListenerFlag = "--listener"

// ModulesFlag begins the guest's argument on an engine whose programs are WebAssembly modules. The
// rest of the argument is a modules.Config in JSON. ServiceFD is then the guest's end of a
// SOCK_SEQPACKET socket at which the engine compiles modules.
const (
	ModulesFlag = "--modules="
	ServiceFD   = 6
)

// RunnerArg0 is the name under which the program that runs modules is started. ModuleFD is its
// descriptor of the module, and CompiledFD that of the compiled module, if there is one.
const (
	RunnerArg0 = "crannog-wasm"
	ModuleFD   = 3
	CompiledFD = 4
)

// BecomeSyscall is the number of a system call that only the guest may make, before it does
// anything else, and only on an engine with its own kernel. Its arguments are the address and the
// length of a host name, or 0 to keep the name, and 1 to draw a new boot ID or 0. A kernel without
// the call answers ENOSYS. After any other error the sandbox must not continue: it would share its
// name and boot ID with the sandbox that it was copied from.
const BecomeSyscall = 1999

// PlainFlag is the guest's argument on an engine that gives the sandbox no kernel of its own and no
// rights. The guest then does not call BecomeSyscall, and before anything else it fills empty
// directories from FillDir.
const (
	PlainFlag = "--plain"
	FillDir   = "/.crannog/fill"
)

// ChannelRole is the first argument of the guest's program when an engine starts it once more
// inside, to serve streams to ports on its standard input and output, by the protocol of
// relay.ServeStreams.
const ChannelRole = "channel"
