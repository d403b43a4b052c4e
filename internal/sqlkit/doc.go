// Package sqlkit is what the stores on SQL databases, sqllock and nativelock, have in common: what
// the errors of any driver mean, and the bounds of their waits. It links no driver.
package sqlkit
