package redislock

import (
	"embed"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed *.lua parts/*.lua
var luaFiles embed.FS

// script sends only the digest of a script. A server that does not know it (a new one, or after
// SCRIPT FLUSH) is then sent the source.
type script struct {
	*redis.Script
	source string
}

// newScript assembles a script: Lua in Redis cannot include files, so code that several scripts
// share is in parts. Each script has only the parts that it uses, because Redis creates their
// functions on every call.
func newScript(name string, parts ...string) *script {
	var source strings.Builder
	for _, part := range append(parts, name) {
		if part != name {
			part = "parts/" + part
		}
		text, err := luaFiles.ReadFile(part + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		source.Write(text)
	}
	return &script{redis.NewScript(source.String()), source.String()}
}

var (
	acquireScript = newScript("acquire", "numbers", "names", "each")
	extendScript  = newScript("extend", "names")
	releaseScript = newScript("release", "names", "each")
	listScript    = newScript("list")
	updateScript  = newScript("update", "numbers", "names")
	inspectScript = newScript("inspect", "names")
	revokeScript  = newScript("revoke", "names")
)
