//go:build !unix

package sqlkit

import "os"

// links returns 1, because the number is unknown on this operating system.
func links(os.FileInfo) int { return 1 }
