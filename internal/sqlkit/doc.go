// Package sqlkit is shared by the stores on SQL databases, sqllock and nativelock: it says what the
// errors of any driver mean, and bounds waits. It links no driver.
package sqlkit
