#include "textflag.h"

#define SYS_clone3 435
#define SYS_exit_group 231
#define cloneArgsSize 88
#define stepSize 48
#define lastErrno 0xfffffffffffff001

// func vfork(how *cloneArgs, list *step, n int, failed *uintptr) (pid, errno uintptr)
//
// The child needs only registers that system calls preserve.
TEXT ·vfork(SB),NOSPLIT|NOFRAME,$0-48
	MOVQ	list+8(FP), R13
	MOVQ	n+16(FP), BX
	MOVQ	failed+24(FP), R12
	MOVQ	how+0(FP), DI
	MOVL	$cloneArgsSize, SI
	MOVL	$SYS_clone3, AX
	SYSCALL
	TESTQ	AX, AX
	JZ	next
	CMPQ	AX, $lastErrno
	JCC	refused
	MOVQ	AX, pid+32(FP)
	MOVQ	$0, errno+40(FP)
	RET

refused:
	NEGQ	AX
	MOVQ	$0, pid+32(FP)
	MOVQ	AX, errno+40(FP)
	RET

next:	// the child
	MOVQ	0(R13), AX
	MOVQ	8(R13), DI
	MOVQ	16(R13), SI
	MOVQ	24(R13), DX
	MOVQ	32(R13), R10
	MOVQ	40(R13), R8
	SYSCALL
	CMPQ	AX, $lastErrno
	JCC	stop
	ADDQ	$stepSize, R13
	DECQ	BX
	JNZ	next

stop:
	NEGQ	AX
	MOVQ	AX, 0(R12)

gone:
	MOVL	$1, DI
	MOVL	$SYS_exit_group, AX
	SYSCALL
	JMP	gone
