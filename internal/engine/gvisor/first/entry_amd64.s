#include "textflag.h"

// _crannog_entry is the first instruction of a program that is linked with -E=_crannog_entry. For
// gVisor's unmount command with the arguments that gVisor always uses, it does the command's work
// and exits, before the Go runtime starts, which alone costs more than the work. For all other
// arguments it continues with the Go runtime, and unmount.go handles the rest.
//
// The kernel places the arguments one after the other. So argv[0] points to 40 bytes, which are
// compared eight at a time. A later part is read only if all parts before it were as expected, and
// at least ten bytes follow the arguments (the path of the program and a null pointer).
TEXT _crannog_entry(SB), NOSPLIT|NOFRAME, $0
	CMPQ 0(SP), $4 // argc
	JNE  start
	MOVQ 8(SP), BX // argv[0]
	MOVQ $0x65732f636f72702f, AX // "/proc/se"
	CMPQ AX, 0(BX)
	JNE  start
	MOVQ $0x75006578652f666c, AX // "lf/exe\0u"
	CMPQ AX, 8(BX)
	JNE  start
	MOVQ $0x2d2d00746e756f6d, AX // "mount\0--"
	CMPQ AX, 16(BX)
	JNE  start
	MOVQ $0x3d64662d636e7973, AX // "sync-fd="
	CMPQ AX, 24(BX)
	JNE  start
	MOVQ $0x00636f72702f0033, AX // "3\0/proc\0"
	CMPQ AX, 32(BX)
	JNE  start

await:
	MOVQ $0, AX    // read one byte, into the first argument, which is not needed any more
	MOVQ $3, DI
	MOVQ 8(SP), SI
	MOVQ $1, DX
	SYSCALL
	CMPQ AX, $-4   // -EINTR
	JEQ  await
	CMPQ AX, $1
	JNE  failed    // the requesting process has ended or failed
	MOVQ $166, AX  // umount2, MNT_DETACH
	MOVQ 32(SP), DI
	MOVQ $2, SI
	SYSCALL
	MOVQ $0, DI
	TESTQ AX, AX
	JEQ  exit

failed:
	MOVQ $128, DI  // exitFailed

exit:
	MOVQ $231, AX  // exit_group
	SYSCALL
	JMP  exit

start:
	JMP  _rt0_amd64_linux(SB)
