#include "textflag.h"

// func call(number, a, b, c uintptr) (result uintptr)
TEXT ·call(SB), NOSPLIT, $0-40
	MOVD number+0(FP), R8
	MOVD a+8(FP), R0
	MOVD b+16(FP), R1
	MOVD c+24(FP), R2
	SVC
	MOVD R0, result+32(FP)
	RET

// func dataStart() uintptr
TEXT ·dataStart(SB), NOSPLIT, $0-8
	MOVD $runtime·noptrdata(SB), R0
	MOVD R0, ret+0(FP)
	RET

// func dataEnd() uintptr
TEXT ·dataEnd(SB), NOSPLIT, $0-8
	MOVD $runtime·ebss(SB), R0
	MOVD R0, ret+0(FP)
	RET
