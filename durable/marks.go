package durable

// IsPermanent reports whether Permanent has marked an error, for middleware: the attempt is the
// last, also if its worker shuts down.
func IsPermanent(err error) bool {
	mark := markOf(err)
	return mark != nil && mark.permanent
}
