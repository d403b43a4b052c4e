//go:build !unix

package redistest

import (
	"errors"
	"os"
)

func pauseProcess(*os.Process) error  { return errors.ErrUnsupported }
func resumeProcess(*os.Process) error { return errors.ErrUnsupported }

// stopProcess kills: there is no polite signal to send here.
func stopProcess(p *os.Process) error { return p.Kill() }
