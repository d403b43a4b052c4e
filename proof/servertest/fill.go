package servertest

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// templatesEnv names a folder that keeps the results of Fill until its creator removes it.
const templatesEnv = "TICKSLOT_TEMPLATES"

var filling sync.Mutex // so that servers that start together do not all create the first one

// Fill creates a folder in the server's folder by calling fill, which must create the same for
// every server of the program with this path. With TICKSLOT_TEMPLATES, only the first server of all
// processes calls fill, and the others copy its result.
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

// copyTo copies a folder with its files' permissions, as the server's user, who must own them.
func (s *Server) copyTo(to, from string) error {
	_, err := s.Run(s.Command("cp", "-Rp", from, to))
	return err
}
