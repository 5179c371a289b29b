package runner

import (
	"io"
	"math/rand/v2"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"
)

// epoch is the time at which a deterministic module starts: 2022-01-01 00:00 UTC.
const epoch = 1640995200_000_000_000

// clock is a clock that does not follow real time. Each reading advances it by a microsecond, so
// that a program that waits for a time in a loop ends. Each sleep advances it by the length of the
// sleep, and takes no time.
type clock struct{ passed int64 }

// tick is how far a reading advances the clock, in nanoseconds.
const tick = 1000

// now advances the clock and returns its time.
func (c *clock) now() int64 {
	c.passed += tick
	return c.passed
}

// fixed configures a module with a clock, random numbers and an input that are the same in each
// run.
func fixed(config wazero.ModuleConfig, in io.Reader) wazero.ModuleConfig {
	return (&clock{}).fix(config).
		// How many bytes one read of a pipe returns depends on when its writer wrote, so each
		// read fills its buffer.
		WithStdin(fullReader{in})
}

// fix configures a module with the clock and the same random numbers in each run.
func (c *clock) fix(config wazero.ModuleConfig) wazero.ModuleConfig {
	return config.
		WithWalltime(func() (int64, int32) {
			t := epoch + c.now()
			return t / 1e9, int32(t % 1e9)
		}, sys.ClockResolution(tick)).
		WithNanotime(c.now, sys.ClockResolution(tick)).
		WithNanosleep(func(ns int64) { c.passed += max(ns, 0) }).
		WithRandSource(rand.NewChaCha8([32]byte{}))
}
