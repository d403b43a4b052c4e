package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"sync"
)

var (
	//go:embed assets/page.css
	style []byte
	//go:embed assets/page.js
	script []byte
	//go:embed assets/openapi.json
	openAPI []byte
)

// An asset is a file that pages use.
type asset struct {
	kind    string // Content-Type
	text    []byte
	version string // of its text
}

func newAsset(kind string, text []byte) asset {
	sum := sha256.Sum256(text)
	return asset{kind, text, hex.EncodeToString(sum[:8])}
}

// assets are those that are embedded, by the names of their URLs.
var assets = map[string]asset{
	pageAPI:    newAsset("application/json", openAPI),
	pageStyle:  newAsset("text/css; charset=utf-8", style),
	pageScript: newAsset("text/javascript; charset=utf-8", script),
}

// assetURL returns the URL of this version of an asset, which browsers keep for a year.
func assetURL(name string) string { return URL(name, "v", assets[name].version) }

// serve answers with the asset. Another version is not kept: while hosts are replaced, the page of
// a new one may ask an old one.
func (a asset) serve(w http.ResponseWriter, r *http.Request) {
	if a.version != "" && r.URL.Query().Get("v") == a.version {
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", a.kind)
	write(w, r, http.StatusOK, a.text)
}

// minGzip is from how many bytes on it is worth it to compress an answer.
const minGzip = 1 << 10

var gzips = sync.Pool{New: func() any { return gzip.NewWriter(io.Discard) }}

// write answers with a body, compressed if the client wants it so. How long a compressed answer is
// tells a little of what is in it: no page has both what is secret and what others could put into
// its URL.
func write(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Add("Vary", "Accept-Encoding")
	if len(body) >= minGzip && acceptsGzip(r) {
		var out bytes.Buffer
		z := gzips.Get().(*gzip.Writer)
		z.Reset(&out)
		_, _ = z.Write(body) // a buffer takes everything
		_ = z.Close()
		gzips.Put(z)
		w.Header().Set("Content-Encoding", "gzip")
		body = out.Bytes()
	}
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has disconnected
}

// acceptsGzip reports whether a client says that it reads gzip.
func acceptsGzip(r *http.Request) bool {
	for _, coding := range strings.Split(strings.Join(r.Header.Values("Accept-Encoding"), ","), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(coding, " ", ""), ";")
		if strings.EqualFold(name, "gzip") {
			q, has := strings.CutPrefix(strings.ToLower(weight), "q=")
			return !has || strings.Trim(q, "0.") != ""
		}
	}
	return false
}

// doneCookie has the name of the action that was just done, until a page has said so. After a ? it
// has the values of the action that takes it back, if there is one.
const doneCookie = "tickslot-done"

// setDone sets a cookie that makes the next page say what was done. Browsers send it to the path of
// the page only, wherever the page is mounted.
func setDone(w http.ResponseWriter, done string, seconds int) {
	http.SetCookie(w, &http.Cookie{Name: doneCookie, Value: done, MaxAge: seconds, HttpOnly: true,
		SameSite: http.SameSiteStrictMode})
}
