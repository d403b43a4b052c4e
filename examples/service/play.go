package main

import (
	"context"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"net/url"
	"os"
	"time"
)

// A report is the output of -json, counted in the database and over HTTP.
type report struct {
	Orders      int `json:"orders"`
	Runs        int `json:"runs"`     // receipts
	Messages    int `json:"messages"` // appended messages
	Effects     int `json:"effects"`  // shipments
	Lost        int `json:"lost"`     // orders without a receipt, or without a shipment
	Doubled     int `json:"doubled"`  // receipts and shipments beyond the first for an order
	Page        int `json:"page"`     // the HTTP status of the operator's page
	Ready       int `json:"ready"`    // the HTTP status of /readyz
	WiringLines int `json:"wiring_lines"`
}

func count(ctx context.Context, db *sql.DB) (r report, err error) {
	var receipts, shipments int
	err = db.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM tickslot_outbox),
		(SELECT count(*) FROM receipts), (SELECT count(DISTINCT order_id) FROM receipts),
		(SELECT count(*) FROM shipments), (SELECT count(DISTINCT order_id) FROM shipments)`).
		Scan(&r.Orders, &r.Messages, &r.Runs, &receipts, &r.Effects, &shipments)
	r.Lost = r.Orders - receipts + r.Orders - shipments
	r.Doubled = r.Runs - receipts + r.Effects - shipments
	return r, err
}

// play places orders for a while, waits until all work is done, and prints the report.
func (s *shop) play(ctx context.Context, base string, lasts time.Duration) error {
	until := time.Now().Add(lasts)
	for i := 0; time.Now().Before(until); i++ {
		form := url.Values{"customer": {[]string{"ann", "ben", "cleo"}[i%3]}}
		if _, err := status(http.PostForm(base+"/orders", form)); err != nil {
			return err
		}
		pause(ctx, 50*time.Millisecond)
	}
	limit, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the orders are not done after a minute"))
	defer cancel()
	r, err := count(ctx, s.db)
	for err == nil && r.Lost > 0 {
		pause(limit, 100*time.Millisecond)
		if limit.Err() != nil {
			return fmt.Errorf("%w: %+v", context.Cause(limit), r)
		}
		r, err = count(ctx, s.db)
	}
	if err != nil {
		return err
	}
	if r.Page, err = status(http.Get(base + "/admin/")); err != nil {
		return err
	}
	if r.Ready, err = status(http.Get(base + "/readyz")); err != nil {
		return err
	}
	if r.WiringLines, err = wiringLines(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

func status(answer *http.Response, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	return answer.StatusCode, answer.Body.Close()
}

//go:embed wiring.go
var wiring string

// wiringLines counts the non-empty lines of serve.
func wiringLines() (lines int, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "wiring.go", wiring, 0)
	if err != nil {
		return 0, err
	}
	used := map[int]bool{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "serve" {
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if n != nil {
					used[set.Position(n.Pos()).Line], used[set.Position(n.End()-1).Line] = true, true
				}
				return true
			})
			delete(used, set.Position(f.Body.Pos()).Line)
			delete(used, set.Position(f.Body.End()-1).Line)
		}
	}
	return len(used), nil
}
