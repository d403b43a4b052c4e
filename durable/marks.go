package durable

// IsPermanent reports to middleware whether Permanent has marked an error. A marked error makes the
// attempt the last one, even if its worker shuts down.
func IsPermanent(err error) bool {
	mark := markOf(err)
	return mark != nil && mark.permanent
}
