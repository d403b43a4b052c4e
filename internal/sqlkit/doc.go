// Package sqlkit is shared by all packages on SQL databases: sqllock, nativelock, sqlregistry,
// durable and outbox. It classifies the errors of any driver, bounds waits, binds statements, and
// compares tables with their declarations. It links no driver.
package sqlkit
