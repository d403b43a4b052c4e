package main

import (
	"math"
	"slices"
)

// A spread summarizes a figure that was measured in several rounds.
type spread struct{ Median, Min, Max float64 }

func spreadOf(list []float64) spread {
	if len(list) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	return spread{median(list), slices.Min(list), slices.Max(list)}
}

// median returns, for an even number of values, the mean of the two in the middle.
func median(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(list))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

// ratios divides the values of each round.
func ratios(a, b []float64) []float64 {
	list := make([]float64, min(len(a), len(b)))
	for i := range list {
		list[i] = a[i] / b[i]
	}
	return list
}

// rotated returns the order of n cases in a round, as indexes. In n rounds, each comes first once.
func rotated(n, round int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = (i + round) % n
	}
	return order
}
