package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// tested is the file with the latest results of all servers.
const tested = "docs/tested.json"

// documents are the documents that contain results.
var documents = []string{"README.md", "docs/redis.md", "docs/sql.md"}

// record writes results into the file, replacing those of the same product and version line, and
// into the documents.
func record(top string, results []result) error {
	all, err := read(top)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, r := range results {
		all = slices.DeleteFunc(all, func(old result) bool {
			return old.Product == r.Product && line(old.Version) == line(r.Version)
		})
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.Product, b.Product), compareVersions(a.Version, b.Version))
	})
	var text bytes.Buffer
	text.WriteString("[\n")
	for i, r := range all {
		one, err := json.Marshal(r)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "  %s%s\n", one, map[bool]string{true: ","}[i < len(all)-1])
	}
	text.WriteString("]\n")
	if err := os.WriteFile(filepath.Join(top, tested), text.Bytes(), 0o644); err != nil {
		return err
	}
	for _, name := range documents {
		path := filepath.Join(top, name)
		old, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, fill(old, all), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func read(top string) (all []result, err error) {
	text, err := os.ReadFile(filepath.Join(top, tested))
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(text, &all)
}

// line returns the version line in which a newer version replaces an older one: 18 for Postgres
// 18.6, and the first two numbers for all others.
func line(version string) string {
	parts := strings.Split(version, ".")
	if len(parts) == 2 {
		return parts[0]
	}
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func compareVersions(a, b string) int {
	numbers := func(v string) (list []int) {
		for part := range strings.SplitSeq(v, ".") {
			n, _ := strconv.Atoi(part)
			list = append(list, n)
		}
		return list
	}
	return slices.Compare(numbers(a), numbers(b))
}

// place matches the place of results in a document. A list of products stands for their versions,
// "table" and products for a table.
var place = regexp.MustCompile(`(?s)(<!--tested:([A-Za-z,]+)-->).*?(<!--/-->)`)

// fill writes results into their places in a document.
func fill(text []byte, all []result) []byte {
	return place.ReplaceAllFunc(text, func(found []byte) []byte {
		parts := place.FindSubmatch(found)
		products := strings.Split(string(parts[2]), ",")
		if products[0] == "table" {
			return []byte(string(parts[1]) + "\n\n" + table(all, products[1:]) + "\n" + string(parts[3]))
		}
		return []byte(string(parts[1]) + versions(all, products) + string(parts[3]))
	})
}

// versions returns a list such as "MySQL 9.7.4, MariaDB 10.11.14 and 11.8.9".
func versions(all []result, products []string) string {
	var lists []string
	for _, product := range products {
		var of []string
		for _, r := range all {
			if r.Product == product {
				of = append(of, r.Version)
			}
		}
		if len(of) == 0 {
			lists = append(lists, product+" not run")
			continue
		}
		lists = append(lists, product+" "+strings.Join(of, ", "))
	}
	return strings.Join(lists, "; ")
}

// table returns a table with a row for each server.
func table(all []result, products []string) string {
	var b strings.Builder
	b.WriteString("| server | locks | registry | durable runs | outbox | date |\n|---|---|---|---|---|---|\n")
	for _, product := range products {
		for _, r := range all {
			if r.Product != product {
				continue
			}
			fmt.Fprintf(&b, "| %s %s |", r.Product, r.Version)
			for _, part := range []string{"locks", "registry", "durable", "outbox"} {
				if n, ok := r.Passed[part]; ok {
					fmt.Fprintf(&b, " %d passed |", n)
				} else {
					b.WriteString(" |")
				}
			}
			fmt.Fprintf(&b, " %s |\n", r.Date)
		}
	}
	return b.String()
}
