package durable

// IsDead reports whether Dead has marked an error, for middleware: the attempt is the last, also if
// its worker shuts down.
func IsDead(err error) bool {
	mark := markOf(err)
	return mark != nil && mark.dead
}
