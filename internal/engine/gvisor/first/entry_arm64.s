#include "textflag.h"

// _crannog_entry is described in entry_amd64.s.
TEXT _crannog_entry(SB), NOSPLIT|NOFRAME, $0
	MOVD 0(RSP), R0 // argc
	CMP  $4, R0
	BNE  start
	MOVD 8(RSP), R3 // argv[0]
	MOVD 0(R3), R5
	MOVD $0x65732f636f72702f, R4 // "/proc/se"
	CMP  R4, R5
	BNE  start
	MOVD 8(R3), R5
	MOVD $0x75006578652f666c, R4 // "lf/exe\0u"
	CMP  R4, R5
	BNE  start
	MOVD 16(R3), R5
	MOVD $0x2d2d00746e756f6d, R4 // "mount\0--"
	CMP  R4, R5
	BNE  start
	MOVD 24(R3), R5
	MOVD $0x3d64662d636e7973, R4 // "sync-fd="
	CMP  R4, R5
	BNE  start
	MOVD 32(R3), R5
	MOVD $0x00636f72702f0033, R4 // "3\0/proc\0"
	CMP  R4, R5
	BNE  start

await:
	MOVD $63, R8    // read one byte, into the first argument, which is not needed any more
	MOVD $3, R0
	MOVD 8(RSP), R1
	MOVD $1, R2
	SVC
	CMN  $4, R0     // -EINTR
	BEQ  await
	CMP  $1, R0
	BNE  failed     // the requesting process has ended or failed
	MOVD $39, R8    // umount2, MNT_DETACH
	MOVD 32(RSP), R0
	MOVD $2, R1
	SVC
	CBZ  R0, exit

failed:
	MOVD $128, R0   // exitFailed

exit:
	MOVD $94, R8    // exit_group
	SVC
	B    exit

start:
	B    _rt0_arm64_linux(SB)
