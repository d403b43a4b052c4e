// Package sqlkit is shared by all packages on SQL databases: sqllock, nativelock, sqlregistry,
// durable and outbox. It says what the errors of any driver mean, bounds waits, binds statements,
// and compares tables with what they have to be. It links no driver.
package sqlkit
