package main

import (
	"fmt"
	"os"
	"slices"
)

// Processor time depends on the machine too: on its clock, on its caches, and above all on the cost
// of a page fault and of a switch between processes, which differs tenfold between bare metal and
// nested virtual machines. A budget in seconds would therefore judge the machine. The calibration
// is a fixed amount of work that resembles starting sandboxes: processes are started, memory is
// used for the first time, Go code runs, threads wake each other. Budgets are multiples of its cost
// on the same machine, in the same run.
const (
	workers = 100
	touched = 16 << 20
	sorted  = 1 << 17
	wakes   = 400
)

// calibrate does the fixed work and returns its processor time in seconds.
func calibrate() (float64, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	var sum float64
	for range workers {
		r, err := run([]string{self, "work"})
		if err != nil {
			return 0, err
		}
		if r.code != 0 {
			return 0, fmt.Errorf("a worker of the calibration ended with %d", r.code)
		}
		sum += r.processor.Seconds()
	}
	return sum, nil
}

// work is the work of one process of the calibration.
func work() error {
	memory := make([]byte, touched)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	numbers, state := make([]uint32, sorted), uint32(1)
	for i := range numbers {
		state = state*1664525 + 1013904223
		numbers[i] = state
	}
	slices.Sort(numbers)
	return wake()
}

// wake sends a byte back and forth between two threads, through the kernel.
func wake() error {
	there, here, err := os.Pipe()
	if err != nil {
		return err
	}
	back, answer, err := os.Pipe()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		b := make([]byte, 1)
		for range wakes {
			if _, err := there.Read(b); err != nil {
				done <- err
				return
			}
			if _, err := answer.Write(b); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	b := make([]byte, 1)
	for range wakes {
		if _, err := here.Write(b); err != nil {
			return err
		}
		if _, err := back.Read(b); err != nil {
			return err
		}
	}
	return <-done
}
