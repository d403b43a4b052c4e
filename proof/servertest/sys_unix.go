//go:build unix

package servertest

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

func pause(p *os.Process) error                      { return p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) error                     { return p.Signal(syscall.SIGCONT) }
func signal(p *os.Process, sig syscall.Signal) error { return p.Signal(sig) }

// An account is a user that a program runs as; nil is the current one.
type account struct{ uid, gid uint32 }

// nobody looks up the user for servers that refuse to run as root.
func nobody() (*account, error) {
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &account{uint32(uid), uint32(gid)}, nil
}

// attr makes a child die with this process, and run as the account unless that is nil.
func (a *account) attr() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{}
	if a != nil {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	dieWithParent(attr)
	return attr
}

// own makes the account the owner of a file or folder, unless the account is nil.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// everybodysTemp is the parent of folders for servers that run as nobody: the usual temporary
// folder, unless others cannot read its path.
func everybodysTemp() string {
	temp := os.TempDir()
	for dir := temp; ; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err != nil || st.Mode()&0o001 == 0 {
			return "/tmp"
		}
		if dir == filepath.Dir(dir) {
			return temp
		}
	}
}
