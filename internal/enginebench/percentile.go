package enginebench

import "slices"

// Percentile returns the value below which the share p of the values lies, interpolated between
// neighbours. It returns 0 if there are no values.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := p * float64(len(sorted)-1)
	low := min(max(int(at), 0), len(sorted)-1)
	high := min(low+1, len(sorted)-1)
	share := at - float64(low)
	return sorted[low]*(1-share) + sorted[high]*share
}
