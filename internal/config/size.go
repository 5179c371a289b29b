package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

var units = []struct {
	name  string
	shift uint
}{{"t", 40}, {"g", 30}, {"m", 20}, {"k", 10}}

// ParseSize parses bytes as "512m", "1.5g", "64KiB" or a plain number. Units are powers of 1024.
func ParseSize(v string) (int64, error) {
	bad := fmt.Errorf("%q is not a size such as 512m or 2g", v)
	s := strings.ToLower(strings.TrimSpace(v))
	s = strings.TrimSuffix(strings.TrimSuffix(s, "b"), "i")
	var shift uint
	for _, u := range units {
		if head, ok := strings.CutSuffix(s, u.name); ok {
			s, shift = head, u.shift
			break
		}
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil && n >= 0 && n < 1<<62>>shift {
		return n << shift, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.ContainsAny(s, "xpe+_") || f < 0 || math.IsNaN(f) || f*float64(int64(1)<<shift) >= 1<<62 {
		return 0, bad
	}
	return int64(f * float64(int64(1)<<shift)), nil
}

// FormatSize formats bytes so that ParseSize returns the same number.
func FormatSize(n int64) string {
	for _, u := range units {
		if n >= 1<<u.shift && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ParseCPUs parses CPUs such as "1.5" as thousandths.
func ParseCPUs(v string) (int64, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || math.IsNaN(f) || f < 0 || f > 100_000 {
		return 0, fmt.Errorf("%q is not a number of CPUs such as 1.5", v)
	}
	if f > 0 && f < 0.001 {
		return 1, nil
	}
	return int64(math.Round(f * 1000)), nil
}

// FormatCPUs formats thousandths of a CPU so that ParseCPUs returns the same number.
func FormatCPUs(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64)
}
