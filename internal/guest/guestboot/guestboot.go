// Package guestboot owns the conventions between an engine and the guest: the ports that the guest
// serves, the line by which it reports that it is ready, and the descriptors and the system call
// that an engine may provide.
package guestboot

// Port is the loopback port of the sandbox on which the guest serves the data plane.
// InterpreterPort is the port of the code interpreter. RelayPort connects streams from an engine to
// ports inside, with the protocol of package relay. It is for engines whose own port forwarding
// loses bytes.
//
// DevToolsPort is the port of the browser of the template browser. The guest does not serve it. The
// data plane requires the sandbox's access token for it, because its clients control the browser,
// and Chromium itself asks for no credential.
const (
	Port            = 49983
	InterpreterPort = 49999
	RelayPort       = 49982
	DevToolsPort    = 49222
)

// Ports lists the ports on which the guest listens.
func Ports() []int { return []int{Port, InterpreterPort, RelayPort} }

// Ready is the line that the guest prints on standard output when it listens. The guest then closes
// its standard output and error.
const Ready = "ready"

// ChannelFlag is the guest's argument for a channel of streams from the engine. The guest reads
// from descriptor ChannelFD and writes to the next one.
const (
	ChannelFlag = "--channel"
	ChannelFD   = 3
)

// ListenerFlag is the guest's argument for a listening Unix socket of the engine at descriptor
// ChannelFD. Engines whose sandboxes share the host's kernel use it. Each connection to the socket
// is a stream, and no bytes are lost.
const ListenerFlag = "--listener"

// GatewayFlag is the guest's argument for a sandbox without a network interface. GatewayFD is then a
// reference to the listening Unix socket of the egress gateway, to which the guest connects.
const (
	GatewayFlag = "--gateway"
	GatewayFD   = 7
)

// ModulesFlag is the prefix of the guest's argument on an engine that runs WebAssembly modules. The
// rest of the argument is a modules.Config in JSON. ServiceFD is then the guest's end of a
// SOCK_SEQPACKET socket to the engine, which compiles modules on request.
const (
	ModulesFlag = "--modules="
	ServiceFD   = 6
)

// RunnerArg0 is argv[0] of the program that runs modules. ModuleFD is its descriptor of the module.
// CompiledFD is its descriptor of the compiled module, if there is one.
const (
	RunnerArg0 = "crannog-wasm"
	ModuleFD   = 3
	CompiledFD = 4
)

// WorkerModuleFD is the runner's descriptor of the module if it runs the worker of the code
// interpreter for JavaScript. The lower ones are those of every worker: requests, messages and
// acknowledgements. The next one is that of the compiled module.
const WorkerModuleFD = 6

// BecomeSyscall is the number of a system call that only the guest may make, as its first action,
// and only on an engine with its own kernel. Its arguments are the address and length of a host
// name (or 0 to leave the name unchanged), and 1 to generate a new boot ID or 0. A kernel without
// the call returns ENOSYS. After any other error the sandbox must not continue, because it would
// have the name and boot ID of the sandbox from which it was copied.
const BecomeSyscall = 1999

// PlainFlag is the guest's argument on an engine that gives the sandbox neither its own kernel nor
// capabilities. The guest then does not call BecomeSyscall, and first fills empty directories from
// FillDir.
const (
	PlainFlag = "--plain"
	FillDir   = "/.crannog/fill"
)

// GatewayRole is the first argument of the guest's program when an engine starts a second instance
// inside that carries the connections of programs to the egress gateway, on its standard input and
// output, with the protocol of relay.Outward.
const GatewayRole = "gateway"

// ChannelRole is the first argument of the guest's program when an engine starts a second instance
// inside. That instance serves streams to ports on its standard input and output, with the protocol
// of relay.ServeStreams.
const ChannelRole = "channel"

// FilesRole is the first argument of the guest's program when the engine docker starts a second
// instance inside that writes the changed files as a tar to its standard output.
const FilesRole = "files"
