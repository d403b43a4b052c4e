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

// newScript assembles a script from files: Lua in Redis cannot include any, so code that several
// scripts share is in parts. Each script has only the parts that it uses, because Redis creates
// their functions on every call.
func newScript(files ...string) *script {
	var source strings.Builder
	for _, file := range files {
		text, err := luaFiles.ReadFile(file + ".lua")
		if err != nil {
			panic(err) // it is embedded
		}
		source.Write(text)
	}
	return &script{redis.NewScript(source.String()), source.String()}
}

var (
	acquireScript = newScript("parts/numbers", "parts/names", "parts/each", "parts/enlist", "parts/renew", "acquire",
		"slots", "also", "attempt")
	extendScript  = newScript("parts/names", "parts/enlist", "parts/renew", "extend")
	releaseScript = newScript("parts/names", "parts/each", "release")
	listScript    = newScript("list")
	pageScript    = newScript("parts/names", "enumerate")
	updateScript  = newScript("parts/numbers", "parts/names", "update")
	inspectScript = newScript("parts/names", "inspect")
	revokeScript  = newScript("parts/names", "revoke")
)
