// Command service is a shop that uses all parts of tickslot in one process, on SQLite:
//
//	go run ./examples/service
//
// It prints the address of its page, where you can place orders, and of the operator's page. That
// shows all kinds of timers, a durable run and a message for each order, and a partner whose server
// sometimes fails. With -json, it places orders itself for some seconds and counts the results.
// With -customers 1s, one customer in the fleet orders every second. To open the operator's page
// from other machines, set PAGE_PASSWORD. Your own program needs code like wiring.go; the rest is
// the shop.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // any other SQLite driver works
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "the `ADDRESS` to serve at; port 0: any")
	path := flag.String("db", "", "the `FILE` of the database; without it: one that is removed at the end")
	asJSON := flag.Bool("json", false, "order by itself for a while, and end with a line of JSON")
	lasts := flag.Duration("for", 20*time.Second, "how long -json orders")
	s := &shop{}
	flag.DurationVar(&s.customers, "customers", 0, "how often somebody orders; 0: when you do")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C lets runs finish; the second does not wait
	if !*asJSON {
		*lasts = 0
	}
	if err := run(ctx, s, *addr, *path, *lasts); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends or, if lasts is not 0, until the demonstration is over.
func run(ctx context.Context, s *shop, addr, path string, lasts time.Duration) (err error) {
	if path == "" {
		folder, err := os.MkdirTemp("", "tickslot-service-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		path = filepath.Join(folder, "shop.db")
	}
	db, err := open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	partner, err := openPartner(ctx, db)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer partner.server.Close()
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the operator's page shows failures

	s.db, s.partner = db, partner.url
	if s.operator, err = operator(os.Getenv("PAGE_PASSWORD")); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	listening, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- s.serve(ctx, addr, listening) }()
	select {
	case err := <-ended:
		return err
	case url := <-listening:
		fmt.Println("make an order:    ", url)
		fmt.Println("operate the fleet:", url+"/admin/")
		fmt.Println("probes, metrics:  ", url+"/readyz?verbose", url+"/metrics")
		if lasts == 0 {
			return <-ended
		}
		err := s.play(ctx, url, lasts)
		stop()
		return errors.Join(err, <-ended)
	}
}

// open returns a database without opening the file.
func open(path string) (*sql.DB, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	path = filepath.ToSlash(path)
	if path[0] != '/' {
		path = "/" + path // C:/…
	}
	dsn := url.URL{Scheme: "file", Path: path,
		RawQuery: "_txlock=immediate&_pragma=busy_timeout(5000)&_pragma=synchronous(normal)"}
	db, err := sql.Open("sqlite", dsn.String())
	if err == nil {
		db.SetMaxOpenConns(12)
	}
	return db, err
}
