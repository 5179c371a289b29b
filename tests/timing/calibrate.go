package main

import (
	"fmt"
	"os"
	"slices"
)

// The calibration is a fixed amount of work that resembles starting sandboxes: processes start,
// memory is used for the first time, Go code runs, threads wake each other. Budgets are multiples
// of its cost on the same machine, in the same run. A budget in seconds would judge the machine:
// its clock, its caches, and above all the cost of page faults and context switches. These differ
// tenfold between bare metal and nested virtual machines.
const (
	workers       = 100
	touchedBytes  = 16 << 20
	sortedNumbers = 1 << 17
	roundTrips    = 400
)

// calibrate does the fixed amount of work and returns its processor time in seconds.
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
			return 0, fmt.Errorf("a worker of the calibration: exit code %d", r.code)
		}
		sum += r.processor.Seconds()
	}
	return sum, nil
}

// work does the work of one process of the calibration.
func work() error {
	memory := make([]byte, touchedBytes)
	for i := 0; i < len(memory); i += 4096 {
		memory[i] = 1
	}
	numbers, state := make([]uint32, sortedNumbers), uint32(1)
	for i := range numbers {
		state = state*1664525 + 1013904223
		numbers[i] = state
	}
	slices.Sort(numbers)
	return wake()
}

// wake sends bytes back and forth between two threads, through the kernel.
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
		for range roundTrips {
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
	for range roundTrips {
		if _, err := here.Write(b); err != nil {
			return err
		}
		if _, err := back.Read(b); err != nil {
			return err
		}
	}
	return <-done
}
