//go:build unix

package sqlkit

import (
	"os"
	"syscall"
)

// links returns how many names a file has in its file system.
func links(info os.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Nlink)
	}
	return 1
}
