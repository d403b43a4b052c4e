//go:build unix

package sqlkit

import (
	"os"
	"syscall"
)

// links returns the number of hard links to a file.
func links(info os.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Nlink)
	}
	return 1
}
