package redisregistry

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"io"
)

const (
	// packFrom is the size in bytes from which on a detail is compressed. The details of a fleet
	// are most of what a Read returns, and the server is busy with nothing else meanwhile; they are
	// lists of names, of which a tenth is left. Short ones stay readable in redis-cli.
	packFrom = 1_000

	// packed begins what is compressed. No JSON begins with it.
	packed = "z"

	// maxDetail bounds what is taken for a detail: a few bytes can stand for gigabytes.
	maxDetail = 16 << 20
)

// pack returns a detail as it is stored; "": none.
func pack(detail json.RawMessage) string {
	if len(detail) < packFrom {
		return string(detail)
	}
	b := bytes.NewBufferString(packed)
	w, err := flate.NewWriter(b, flate.BestSpeed)
	if err == nil {
		_, err = w.Write(detail)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil || b.Len() >= len(detail) { // a buffer does not fail
		return string(detail)
	}
	return b.String()
}

// unpack returns a detail as it was given; ok is false if it is none of ours.
func unpack(stored string) (detail json.RawMessage, ok bool) {
	if len(stored) == 0 || stored[0] != packed[0] {
		return json.RawMessage(stored), stored != ""
	}
	r := io.LimitReader(flate.NewReader(bytes.NewBufferString(stored[1:])), maxDetail)
	b, err := io.ReadAll(r)
	return b, err == nil
}
