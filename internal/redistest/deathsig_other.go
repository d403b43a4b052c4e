//go:build !linux

package redistest

import "syscall"

// childAttr is empty where there is no parent-death signal: a test binary that
// dies without its cleanups leaves its servers behind there.
func childAttr() *syscall.SysProcAttr { return nil }
