package commands

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version returns the command that identifies this program, for bug reports.
func (a *app) version() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", GroupID: groupMaintain, Args: takes(0),
		Long:    "The versions of the module and of Go, and the commit of the build if known.",
		Example: "  tickslot version",
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.Out, "tickslot", versionText())
			return err
		}}
}

// versionText returns the module's version, the commit, and the Go version.
func versionText() string {
	version, commit, changed := "(devel)", "commit not known", ""
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	if ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = "commit " + s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = ", with changes"
			}
		}
	}
	return fmt.Sprintf("%s (%s%s), %s %s/%s", version, commit, changed, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
