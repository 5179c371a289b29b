package escape_test

const (
	ownKernel = "The kernel that permits it is the sandbox's own, and the host's is not asked"
	ownChroot = "The directories above are the sandbox's own, as are all that its root could name"
)

// accepted lists, by engine, the attempts that succeed inside but gain nothing, with the reason.
var accepted = map[string]map[string]string{
	"gvisor": {
		"chroot":                         ownChroot,
		"new-user-namespace":             ownKernel,
		"new-user-and-mount-namespace":   ownKernel,
		"new-user-and-network-namespace": ownKernel,
		"session-keyring":                ownKernel,
		"sysrq":                          ownKernel,
		"address-randomisation":          ownKernel,
		"open-fuse":                      ownKernel,
		"open-tun":                       ownKernel,
		"event-socket":                   ownKernel,
		"raise-priority":                 ownKernel,
		"spare-from-memory-killer":       ownKernel,
	},
	"jail": {},
}
