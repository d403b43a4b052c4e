package sqlkit

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// remoteKinds are file systems that are accessed over a network or shared with another kernel.
// SQLite's locks or shared memory do not work on them.
var remoteKinds = []string{
	"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "virtiofs", "vboxsf", "prl_fs", "afs", "ceph", "lustre", "gfs2",
	"ocfs2", "davfs",
	"glusterfs", "gpfs", "beegfs", "fakeowner", "osxfs",
	"fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.vmhgfs-fuse", "fuse.grpcfuse", "fuse.rclone",
	"fuse.osxfs", "fuse.gcsfuse", "fuse.juicefs",
}

// RemoteKind returns the file system of a file if it is in remoteKinds, and otherwise "".
func RemoteKind(path string) string {
	if _, kind := MountOf(realPath(path), mounts()); slices.Contains(remoteKinds, kind) {
		return kind
	}
	return ""
}

// mounts returns the list of mounts, or "" if the system has none.
func mounts() string {
	list, _ := os.ReadFile("/proc/self/mountinfo") // exists on Linux
	return string(list)
}

// realPath resolves the symbolic links in a path.
func realPath(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return path
}

// MountOf returns the mount point of a path and its file system, from a list of mounts as in
// proc(5). It returns the deepest mount point above the path, and the last one if there are
// several.
func MountOf(path, mounts string) (at, kind string) {
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
		if len(point) >= len(at) {
			at, kind = point, types[0]
		}
	}
	return at, kind
}

// mountedFile returns the database file, log or shared memory that is itself a mount point, or "".
func mountedFile(path string) string {
	list := mounts()
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		file := realPath(path) + suffix
		if at, _ := MountOf(file, list); at == file {
			return file
		}
	}
	return ""
}

// unescape replaces the octal escapes in a mount point, such as \040 for a space.
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
