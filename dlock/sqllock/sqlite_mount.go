package sqllock

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// remoteKinds are the file systems over a network, or shared with another kernel, on which SQLite's locks do not work, or whose shared memory is not.
var remoteKinds = []string{
	"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "vboxsf", "prl_fs", "afs", "ceph", "lustre", "gfs2", "ocfs2", "davfs",
	"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.vmhgfs-fuse", "fuse.grpcfuse", "fuse.rclone",
}

// remoteKind returns the kind of file system on which a file is if it is one of remoteKinds, else "", as where the system does not tell.
func remoteKind(path string) string {
	mounts, err := os.ReadFile("/proc/self/mountinfo") // of Linux
	if err != nil {
		return ""
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	if real, err = filepath.Abs(real); err != nil {
		return ""
	}
	if kind := kindOf(real, string(mounts)); slices.Contains(remoteKinds, kind) {
		return kind
	}
	return ""
}

// kindOf finds the file system of a path in the list of what is mounted, see proc(5): the deepest mount point above it, and of several the last.
func kindOf(path, mounts string) (kind string) {
	deepest := -1
	for line := range strings.Lines(mounts) {
		left, right, ok := strings.Cut(line, " - ")
		fields, types := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 5 || len(types) < 1 {
			continue
		}
		point := unescape(fields[4])
		if point != "/" && path != point && !strings.HasPrefix(path, point+"/") {
			continue
		}
		if len(point) >= deepest {
			deepest, kind = len(point), types[0]
		}
	}
	return kind
}

// unescape undoes the octal escapes, \040 for a space, of a mount point.
func unescape(point string) string {
	var b strings.Builder
	for i := 0; i < len(point); i++ {
		if point[i] == '\\' && i+3 < len(point) {
			if n, err := strconv.ParseUint(point[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(point[i])
	}
	return b.String()
}
