package redistest

import "syscall"

// childAttr has the kernel kill the server when the thread that started it
// ends, which includes every way in which a test binary can die. See spawn for
// the thread.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
