package rediskit

import (
	"io/fs"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A Script is executed by its digest. If a server does not know the digest (a new server, or after
// SCRIPT FLUSH), the source is sent.
type Script struct {
	*redis.Script
	Source string
}

// NewScript concatenates a script from Lua files, which must exist. Redis scripts cannot include
// files, so code that several scripts share is in separate files. A script should contain only the
// files it uses, because Redis creates their functions on every call.
func NewScript(files fs.FS, names ...string) *Script {
	var source strings.Builder
	for _, name := range names {
		text, err := fs.ReadFile(files, name+".lua")
		if err != nil {
			panic(err)
		}
		source.Write(text)
	}
	return &Script{redis.NewScript(source.String()), source.String()}
}
