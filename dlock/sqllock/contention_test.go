package sqllock_test

// contentions lists the numbers of attempts on every database. The long tests make eight times as
// many.
var contentions = []struct{ slots, workers, attempts int }{{1, 16, 100}, {5, 16, 100}, {5, 5, 140}, {16, 16, 140},
	{50, 16, 140}}
