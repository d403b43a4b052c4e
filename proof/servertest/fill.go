package servertest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// templatesEnv names a folder that keeps what Fill has made, until whoever set it removes it.
const templatesEnv = "TICKSLOT_TEMPLATES"

var filling sync.Mutex // so that servers that start together do not all make the first one

// Fill makes a folder in the server's folder by calling fill, which has to make the same for every
// server of the program with this path. With TICKSLOT_TEMPLATES only the first of them does, in all
// processes, and the others copy what it has made.
func (s *Server) Fill(folder, program string, fill func() error) error {
	templates := os.Getenv(templatesEnv)
	if templates == "" {
		return fill()
	}
	filling.Lock()
	defer filling.Unlock()
	path := filepath.Join(s.dir, folder)
	template := filepath.Join(templates, strings.ReplaceAll(program, string(filepath.Separator), "_"))
	if _, err := os.Stat(template); err == nil {
		return s.copyTo(path, template)
	}
	if err := fill(); err != nil {
		return err
	}
	draft, err := os.MkdirTemp(templates, s.program.Name+"-")
	if err == nil {
		err = s.account.own(draft)
	}
	if err == nil {
		err = s.copyTo(filepath.Join(draft, folder), path)
	}
	if err == nil {
		// It fails if another process was faster, whose template is as good.
		_ = os.Rename(filepath.Join(draft, folder), template)
		err = os.RemoveAll(draft)
	}
	return err
}

// copyTo copies a folder with the rights of its files, and as the server's user, whom they have to
// belong to.
func (s *Server) copyTo(to, from string) error {
	_, err := s.Run(s.Command("cp", "-Rp", from, to))
	return err
}
