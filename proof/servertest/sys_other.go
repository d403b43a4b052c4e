//go:build !unix

package servertest

import (
	"errors"
	"os"
	"syscall"
)

func pause(*os.Process) error  { return errors.ErrUnsupported }
func resume(*os.Process) error { return errors.ErrUnsupported }

// signal kills the process, because there is no signal for a clean stop.
func signal(p *os.Process, _ syscall.Signal) error { return p.Kill() }

func threadStates(int) string               { return "" }
func children([]int) ([]*os.Process, error) { return nil, nil }
func everybodysTemp() string                { return os.TempDir() }

type account struct{}

func nobody() (*account, error)             { return nil, errors.ErrUnsupported }
func (*account) attr() *syscall.SysProcAttr { return nil }
func (*account) own(string) error           { return nil }
