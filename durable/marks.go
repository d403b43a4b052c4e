package durable

// IsPermanent tells middleware whether Permanent has marked an error: then the attempt is the last,
// even if its worker shuts down.
func IsPermanent(err error) bool {
	mark := markOf(err)
	return mark != nil && mark.permanent
}
