// Package sqlkit is shared by the stores on SQL databases, sqllock, nativelock and sqlregistry: it
// says what the errors of any driver mean, bounds waits, and compares tables with what they have to
// be. It links no driver.
package sqlkit
